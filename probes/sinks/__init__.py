"""Sinks get the readings of committed steps, one file per kind."""
