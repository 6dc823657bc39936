"""Who may write to a run directory: a claim that its owner has locked, or beats for."""
