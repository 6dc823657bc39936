"""Output of verbs."""
