"""What verbs ask a person for."""
