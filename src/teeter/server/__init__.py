"""A page to label on, and a REST interface under it, over the campaigns of one or more files."""
