"""Several processes that write one run: who started them, how they join, and what they say together at the end."""
