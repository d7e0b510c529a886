"""Selection from pools of any size: a plan of shards, run by processes of this machine or by Ray."""
