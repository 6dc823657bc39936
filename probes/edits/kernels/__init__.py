"""What several edits share."""
