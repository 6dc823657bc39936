"""Captures of one call of a model, without a run directory."""
