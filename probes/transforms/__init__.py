"""Transforms: operations on a value before it is stored, one file per kind."""
