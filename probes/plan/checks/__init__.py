"""Checks of a plan: bindings that are refused, and facts worth a note."""
