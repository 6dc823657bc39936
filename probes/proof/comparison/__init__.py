"""Comparison of two runs: series are paired, captures aligned, values measured."""
