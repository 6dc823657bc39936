"""From runs to a page for people."""
