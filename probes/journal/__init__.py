"""The append-only log of the epoch that is being written."""
