"""Whether the process that writes a run still runs, determined without a lock and without writing."""

from __future__ import annotations

import time
from pathlib import Path

from probes.run_directory.owner.claim import HEARTBEAT, PATIENCE, FoundClaim, claims

ALIVE, DEAD, UNKNOWN, NOBODY = "alive", "dead", "unknown", "nobody"


def life_of(directory: Path) -> tuple[str, str]:
    """The state of the processes that own a run directory, and the first of them in words.

    Another look than that of `FoundClaim.life`, which takes a shared lock for a moment: who follows a run only looks.

    Returns:
        `alive`, `unknown` (on another machine), `dead`, or `nobody` (the run has ended); of several ranks the first that holds for one.
    """
    found = [(_life(one), str(one.claim)) for one in claims(directory)]
    for life in (ALIVE, UNKNOWN, DEAD):
        for one, words in found:
            if one == life:
                return life, words
    return NOBODY, ""


def _life(found: FoundClaim) -> str:
    claim = found.claim
    if claim.host and claim.is_near:
        return ALIVE if claim.runs else DEAD
    if HEARTBEAT not in claim.proof:
        return UNKNOWN
    try:
        beaten = found.path.stat().st_mtime
    except OSError:
        return DEAD
    return ALIVE if abs(time.time() - beaten) < PATIENCE else DEAD
