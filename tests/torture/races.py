"""Two runs that want the same directory at the same moment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.torture.report import Effort, Row

TRIALS = 100
REFUSED = (2, 3)
CLEAR = re.compile(r"in use by|is not empty|claimed")


def rows(effort: Effort) -> Iterator[Row]:
    """One row."""
    with effort.row("two runs race for one directory") as row:
        for answer in effort.nurseries.each([_order] * effort.count(TRIALS, 3)):
            row.take(answer, *_wrong(answer))
        row.note = "one wins, the other is refused"
    yield row


def _order(place: Path) -> dict[str, Any]:
    twin = {"acks": str(place / "twin-acks"), "errors": str(place / "twin-errors")}
    return {"gate": str(place / "gate"), "twin": twin, "steps": 10, "every": 5}


def _wrong(answer: dict[str, Any]) -> list[str]:
    ends = sorted([(answer["status"], answer["said"]), (answer["twin_status"], answer["twin_said"])])
    (first, _), (second, said) = ends
    if first != 0 or second not in REFUSED:
        return [f"exit statuses {first} and {second}: {ends}"]
    return [] if CLEAR.search(said) and "Traceback" not in said else [f"the message is not clear: {said}"]
