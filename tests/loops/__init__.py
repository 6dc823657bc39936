"""Programs that nobody had in mind, with their truth kept by hand; see README.md."""
