"""Code that several transforms share."""
