"""Slow, literal transcriptions of the papers' formulas, in float64: what the kernels are held against."""
