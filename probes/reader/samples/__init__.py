"""Rows of captures as the samples of a dataset."""
