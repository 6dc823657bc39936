"""Anchors outside of the run directory: in files, in git, and in trackers; and their signatures."""
