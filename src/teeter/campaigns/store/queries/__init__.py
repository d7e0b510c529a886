"""The queries of the store, by subject."""
