"""Journal, seal, file and reader."""
