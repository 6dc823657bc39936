"""Code that several edits share."""
