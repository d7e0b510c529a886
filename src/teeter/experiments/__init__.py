"""Learners with an oracle, side by side."""
