"""Edits replace a value of the model, one file per kind."""
