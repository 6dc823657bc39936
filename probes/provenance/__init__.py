"""The recorded origin of a run: environment, code, weights."""
