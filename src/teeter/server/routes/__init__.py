"""One file per noun: its pages and its REST."""
