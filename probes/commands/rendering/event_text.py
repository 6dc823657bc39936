"""Events of triggers as lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probes.printable import one_line

EVENT = dict.fromkeys(("number", "leaf", "target", "kind", "index", "bounds", "epoch", "phase", "step"), "?") | {"steps": 0}
WRITTEN = "epoch {epoch}, {phase} step {step}: {steps} steps were written"
NONFINITE = f"{{number}} in `{{leaf}}` of `{{target}}` ({{kind}}) at {{index}}, {WRITTEN}"
BEYOND = f"{{number}} ({{bounds}}) for `{{leaf}}` of `{{target}}` ({{kind}}), {WRITTEN}"


def event_line(event: Mapping[str, Any], *, ranks: bool) -> str:
    """Return one line for an event that a trigger recorded.

    Args:
        event: what the closing record of a file states.
        ranks: whether the run has several ranks, so that the line names the rank.
    """
    rank = f"rank {event['rank']}: " if ranks and "rank" in event else ""
    return one_line(rank + (BEYOND if "bounds" in event else NONFINITE).format(**{**EVENT, **event}))
