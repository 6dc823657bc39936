"""Callbacks for trainers of other packages, each a few lines over `probes.attach`."""
