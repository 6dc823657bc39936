"""How verbs print."""
