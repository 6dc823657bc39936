"""Several processes that write one run: launcher, joining, and the notes at the end."""
