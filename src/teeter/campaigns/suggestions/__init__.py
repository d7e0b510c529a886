"""What other models say: predictions from a file, and language models."""
