"""The costs of captures, measured alternately with what a user would write by hand."""
