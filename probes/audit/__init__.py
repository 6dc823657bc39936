"""Saying afterwards what was captured, and whether it still is."""
