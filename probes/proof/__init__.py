"""Verify, diff and replay: what can be proved of a run."""
