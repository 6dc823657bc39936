"""What every kind of hook does with a value."""
