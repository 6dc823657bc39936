"""Every way in which a training ends early: it ends within five seconds, and its committed steps are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

from tests.torture.report import SMALL, Effort, Row
from tests.torture.training import EPOCHS, STEPS

WAYS: dict[str, tuple[int, ...]] = {
    "SIGTERM": (-SIGTERM,),
    "SIGINT": (-SIGINT, 1, 130),
    "exit": (7,),
    "_exit": (7,),
    "exception": (1,),
}
TRIALS = 40
LONGEST = 5.0
LONGEST_BY_THE_WAY = 15.0  # next to other tests, on a machine of any speed


def rows(effort: Effort) -> Iterator[Row]:
    """One row for all ways."""
    chance, longest = effort.chance("exits"), 0.0
    most = LONGEST if effort.share > SMALL else LONGEST_BY_THE_WAY
    with effort.row(f"ends early: {', '.join(WAYS)}") as row:
        points = [(how, chance.randrange(EPOCHS), chance.randrange(STEPS)) for how in WAYS for _ in range(effort.count(TRIALS))]
        for answer in effort.nurseries.each(_order(*point) for point in points):
            how = answer["order"]["end"]["how"]
            took = answer["finished_at"] - answer["ending_at"]
            longest = max(longest, took)
            wrong = [] if answer["status"] in WAYS[how] else [f"{how}: exit status {answer['status']}: {answer['said'][-300:]}"]
            late = [] if took < most else [f"{how}: took {took:.1f} s to exit"]
            row.take(answer, *wrong, *late)
        row.note = f"the longest exit took {longest:.1f} s"
    yield row


def _order(how: str, epoch: int, step: int) -> Callable[[Path], dict[str, Any]]:
    return lambda place: {"end": {"how": how, "epoch": epoch, "step": step}, "finalize": True}
