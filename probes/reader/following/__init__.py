"""Runs that another process is writing, followed from outside."""
