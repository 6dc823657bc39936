"""Completion in shells: of verbs and options from a generated table, of specs, codes, runs, series and modules from what is there."""
