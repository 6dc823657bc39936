"""Rules across keys: within a range, a schedule or a probe, and between the parts of a spec."""
