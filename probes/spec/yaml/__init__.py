"""YAML text to data with positions."""
