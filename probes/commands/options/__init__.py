"""Options and questions that several verbs share."""
