"""Choose and hand out the items to label."""
