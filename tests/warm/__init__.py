"""Programs that begin with everything imported: forks of one process per worker, in place of fresh interpreters."""
