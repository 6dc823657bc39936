"""What is recorded of a run: environment, code, weights."""
