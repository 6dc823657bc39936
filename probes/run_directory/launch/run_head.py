"""The head of a run: one hash for all that its ledgers list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probes.digest import blake3_hex, canonical
from probes.run_directory.ledger_lines import LedgerContents


def head_of(ledgers: Sequence[LedgerContents]) -> str:
    """The head of a run: of its ledger, or over the heads of all its ledgers; empty if no ledger has a line."""
    return run_head({ledger.name: ledger.heads[-1] for ledger in ledgers if ledger.heads})


def run_head(heads: Mapping[str, str]) -> str:
    """The head over the heads of ledgers by name; with one ledger, its head."""
    return blake3_hex(canonical(dict(heads))) if len(heads) > 1 else next(iter(heads.values()), "")
