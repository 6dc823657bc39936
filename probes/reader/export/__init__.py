"""Captures as files of other tools: Parquet and Arrow tables, npz, safetensors, JSON Lines, and xarray datasets."""
