"""Captures of one tensor on several ranks, joined."""
