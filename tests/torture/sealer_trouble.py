"""A sealer that hangs, crashes, is slow, or continues while the run is recovered; and a slow disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL, SIGSEGV, SIGSTOP
from typing import Any

from tests.torture.report import Effort, Row
from tests.torture.shim import ALL, Calls, Fault, Mode

CALLS = 36  # of about this many of a sealed epoch
Order = Callable[[Path], dict[str, Any]]


def rows(effort: Effort) -> Iterator[Row]:
    """One row for each."""
    yield _signalled(effort, "SIGSEGV in the sealer", SIGSEGV, 40)
    yield _signalled(effort, "SIGSTOP of the sealer", SIGSTOP, 4)
    yield _slow(effort)
    yield _too_early(effort)


def _signalled(effort: Effort, name: str, signal: int, trials: int) -> Row:
    chance = effort.chance(name)

    def order(at: int, once: bool) -> Order:
        def make(place: Path) -> dict[str, Any]:
            fault = {"sealer_fault": Fault(Mode.SIGNAL_BEFORE, at, value=signal).text(place / "run")}
            mark = {"sealer_once": str(place / "once")} if once else {}
            return {**fault, **mark, "orphan_patience": 0.5, "sealer_patience": 3.0}

        return make

    with effort.row(name) as row:
        points = [(chance.randint(1, CALLS), index % 2 == 0) for index in range(effort.count(trials, 1))]
        longest = 0.0
        for answer in effort.nurseries.each(order(*point) for point in points):
            whole = answer.get("trained") == answer.get("steps")
            row.take(answer, *([] if whole else [f"training ended after {answer.get('trained')} steps: {answer['said'][-300:]}"]))
            longest = max(longest, answer["seconds"])
        row.note = f"every training ran to its end, the longest in {longest:.1f} s"
    return row


def _slow(effort: Effort) -> Row:
    """A disk on which every call takes 3 ms, and one of them 2 s."""
    chance = effort.chance("slow")

    def order(stalled: int) -> Order:
        def make(place: Path) -> dict[str, Any]:
            slow = Fault(Mode.DELAY, 0, int(ALL), 3_000).text(place / "run")
            stall = Fault(Mode.STALL, stalled, int(Calls.WRITE | Calls.SYNC), 2_000_000).text(place / "run")
            return {"fault": stall, "sealer_fault": slow} if stalled % 2 else {"fault": slow, "sealer_fault": stall}

        return make

    with effort.row("a slow disk: 3 ms a call, or one call of 2 s") as row:
        longest = 0.0
        for answer in effort.nurseries.each(order(chance.randint(1, 120)) for _ in range(effort.count(20, 2))):
            row.take(answer, *([] if answer["status"] == 0 else [f"exit status {answer['status']}: {answer['said'][-300:]}"]))
            longest = max(longest, answer["seconds"])
        row.note = f"all complete, the longest in {longest:.1f} s"
    return row


def _too_early(effort: Effort) -> Row:
    """The training is killed, and the run recovered while its sealer still works."""
    name = "recover while the sealer of a killed training still works"
    chance = effort.chance(name)

    def order(at: float) -> Order:
        def make(place: Path) -> dict[str, Any]:
            slow = Fault(Mode.DELAY, 0, int(ALL), chance.choice([0, 300, 2000])).text(place / "run")
            return {"kill_after": at, "kill_signal": int(SIGKILL), "leave_orphans": True, "sealer_fault": slow}

        return make

    with effort.row(name) as row:
        (whole,) = effort.nurseries.each([lambda place: {}])
        moments = [whole["ended"] * chance.uniform(0.3, 1.3) for _ in range(effort.count(100, 4))]
        for answer in effort.nurseries.each(order(at) for at in moments):
            row.take(answer)
    return row
