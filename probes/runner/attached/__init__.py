"""The attached part of a run: taps, hooks on modules, and the schedules that decide which are due."""
