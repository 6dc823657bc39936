"""The closing record of a capture file, on the end of its epoch."""
