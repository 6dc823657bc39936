"""What a capture file says of the end of its epoch."""
