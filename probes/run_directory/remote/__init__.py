"""Run directories in object stores and other places that fsspec reaches."""
