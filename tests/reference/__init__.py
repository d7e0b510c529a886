"""Slow, literal transcriptions of the papers' formulas in float64, to test the kernels with."""
