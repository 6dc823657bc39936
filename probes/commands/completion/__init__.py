"""Shell completion: of verbs and options from a generated table; of specs, codes, runs, series and modules from files."""
