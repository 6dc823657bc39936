"""Where captures go, one file per kind."""
