"""A disk that fails: every write and every sync in turn, once or from then on, a quota, and writes that take only a part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from errno import EDQUOT, EIO
from pathlib import Path
from typing import Any

from tests.torture.calls import counted
from tests.torture.full_disk import faults_of
from tests.torture.report import Effort, Row
from tests.torture.shim import ALL, Calls, Fault, Mode

WHO = ("fault", "sealer_fault")


def rows(effort: Effort) -> Iterator[Row]:
    """One row for each way of failing; each n counts in the training, then in the sealer."""
    for name, mode, kinds, error in (
        ("EIO once, on the n-th write for every n", Mode.FAIL_ONCE, Calls.WRITE, EIO),
        ("EIO once, on the n-th other call on the disk", Mode.FAIL_ONCE, ALL & ~Calls.WRITE & ~Calls.SYNC, EIO),
        ("EDQUOT from the n-th write on", Mode.FAIL_FROM, Calls.WRITE, EDQUOT),
        ("fsync fails, the n-th for every n", Mode.FAIL_ONCE, Calls.SYNC, EIO),
    ):
        with effort.row(name) as row:
            points = [(who, at) for who in WHO for at in range(1, _calls(effort, who, kinds) + 1)]
            orders = (_order(who, Fault(mode, at, int(kinds), error)) for who, at in effort.some(points, name, 2))
            for answer in effort.nurseries.each(orders):
                row.take(answer, *faults_of(answer))
        yield row
    yield _short(effort)


def _calls(effort: Effort, who: str, kinds: Calls) -> int:
    log = effort.folder / "failing.log"
    log.unlink(missing_ok=True)
    list(effort.nurseries.each([lambda place: {who: Fault().text(place / "run", log)}]))
    return counted(log, kinds)


def _order(who: str, fault: Fault) -> Callable[[Path], dict[str, Any]]:
    return lambda place: {who: fault.text(place / "run"), "spec": {"on_error": ("disable", "raise")[fault.at % 2]}}


def _short(effort: Effort) -> Row:
    """Writes that take half of what they are given are finished, so nothing at all may be missing."""
    with effort.row("every n-th write takes half") as row:
        for answer in effort.nurseries.each(_halved(at) for at in effort.some(range(2, 22), "short", 1)):
            row.take(answer, *([] if answer["status"] == 0 else [f"exit status {answer['status']}: {answer['said'][-300:]}"]))
    return row


def _halved(at: int) -> Callable[[Path], dict[str, Any]]:
    def order(place: Path) -> dict[str, Any]:
        fault = Fault(Mode.SHORT, at, int(Calls.WRITE)).text(place / "run")
        return {"fault": fault, "sealer_fault": fault}

    return order
