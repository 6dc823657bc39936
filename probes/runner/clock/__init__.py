"""The clock of a run: a state machine that takes events and answers what follows."""
