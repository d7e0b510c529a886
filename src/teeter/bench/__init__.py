"""For researchers: named datasets, experiments and their analysis."""
