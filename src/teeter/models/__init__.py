"""What a strategy may learn from a model."""
