"""The clock of a run: a state machine from events to answers."""
