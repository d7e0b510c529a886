"""Arrays in, numbers or figures out."""
