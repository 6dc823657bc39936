"""Pictures of captures, drawn by matplotlib."""
