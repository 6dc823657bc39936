"""Running programs that know nothing of us."""
