"""Anchors that are kept outside of the run directory: in files, in git, and in trackers; who signed them."""
