"""Files that sinks write in a run directory: which names they may have, and the name on each rank."""

from __future__ import annotations

import re

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.[a-z0-9]{1,16}")
RESERVED = re.compile(r"ledger.*|run\.json|spec\.yaml|.*\.(h5|journal|tmp|lock)")  # names that the record uses


def name_fault(name: str) -> str:
    """Why a sink cannot have a file of this name; empty where it can."""
    if not PLAIN.fullmatch(name):
        return "a sink writes a plain file in the run directory: letters, digits, _ and -, then a suffix such as .csv"
    return "the run itself writes files of such names" if RESERVED.fullmatch(name) else ""


def on_rank(name: str, rank: int) -> str:
    """The name on a rank: `log.jsonl` on rank 0, `log.rank-0003.jsonl` on rank 3."""
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.rank-{rank:04d}.{suffix}" if rank else name
