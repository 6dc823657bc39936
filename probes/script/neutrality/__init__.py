"""Whether a script computes the same with probes as without."""
