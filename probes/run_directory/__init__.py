"""The directory of a run: names, ownership, ledger, sealing, recovery."""
