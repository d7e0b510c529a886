"""The HTML report of one or more runs."""
