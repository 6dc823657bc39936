"""Rules: bounds of captured numbers, evaluated on the host when a step is committed."""
