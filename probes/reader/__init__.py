"""Reading the captures of a run."""
