"""One call of a model, looked at without a run directory."""
