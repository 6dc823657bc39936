"""What is done to a value before it is stored, one file per kind."""
