"""What a run has on its models: taps, hooks, and which of them are due."""
