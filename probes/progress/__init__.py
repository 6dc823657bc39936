"""Progress of long work: its loops report it, and a line of the terminal shows it."""
