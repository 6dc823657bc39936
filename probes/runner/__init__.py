"""From a Plan to live hooks, and from a loop to steps and epochs."""
