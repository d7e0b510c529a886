"""The background process, which alone loads torch."""
