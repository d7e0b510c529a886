"""A person, a pool of things without labels, and labels that are never lost."""
