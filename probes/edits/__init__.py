"""Rewriting what a hook sees, one file per kind."""
