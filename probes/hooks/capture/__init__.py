"""The common part of all hooks: from a value to the journal."""
