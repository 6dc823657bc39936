"""Pages about runs, for people."""
