"""Finding the model of a script by its calls and optimizer steps."""
