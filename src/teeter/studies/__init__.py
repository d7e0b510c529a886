"""Experiments worth showing, each one function."""
