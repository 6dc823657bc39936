"""Ownership of a run directory: a claim that its owner locks, or updates by a heartbeat."""
