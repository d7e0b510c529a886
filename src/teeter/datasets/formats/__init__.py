"""Readers of published dataset formats, one module per format."""
