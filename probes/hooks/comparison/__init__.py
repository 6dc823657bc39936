"""Comparisons: each value of a binding with a second tensor, of another step, series or run."""
