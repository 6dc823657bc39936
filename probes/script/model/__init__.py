"""Finding the model of a script by evidence."""
