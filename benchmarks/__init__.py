"""What looking costs: measured by turns, against what a user would otherwise write."""
