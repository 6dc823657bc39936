"""Running unmodified programs with probes."""
