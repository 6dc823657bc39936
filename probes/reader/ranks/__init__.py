"""What the ranks of a launch captured of one tensor, as one."""
