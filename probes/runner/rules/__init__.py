"""Rules: bounds of captured numbers, judged on the host when a step is committed."""
