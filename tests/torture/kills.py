"""SIGKILL at every call that changes the disk, in the training, in the sealer and in `probes recover`, and at random times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

from tests.torture.calls import counted
from tests.torture.report import Effort, Row
from tests.torture.shim import ALL, Fault, Mode

RANDOM = 500
Order = Callable[[Path], dict[str, Any]]


def rows(effort: Effort) -> Iterator[Row]:
    """One row for each of the processes, and one for random times."""
    calls, seconds = _measure(effort)
    yield _killed(effort, "SIGKILL of the training at every call on the disk", "fault", calls["fault"])
    yield _killed(effort, "SIGKILL of the sealer at every call on the disk", "sealer_fault", calls["sealer_fault"])
    yield _killed(effort, "SIGKILL of probes recover at every call on the disk", "recover_fault", calls["sealer_fault"])
    yield _at_random(effort, seconds)


def _measure(effort: Effort) -> tuple[dict[str, int], float]:
    """How many calls the training and its sealer make, and how long they take."""
    found: dict[str, int] = {}
    seconds = 0.0
    for who in ("fault", "sealer_fault"):
        log = effort.folder / f"{who}.log"
        log.unlink(missing_ok=True)
        (answer,) = effort.nurseries.each([lambda place, who=who, log=log: {who: Fault().text(place / "run", log)}])
        assert (answer["status"], answer["lost"]) == (0, 0), f"a training without a fault: {answer}"
        found[who], seconds = counted(log, ALL), answer["ended"]
        log.unlink()
    return found, seconds


def _killed(effort: Effort, name: str, who: str, calls: int) -> Row:
    points = [(mode, at) for mode in (Mode.SIGNAL_WITHIN, Mode.SIGNAL_AFTER) for at in range(1, calls + 1)]
    with effort.row(name) as row:
        for answer in effort.nurseries.each(_kill(who, mode, at) for mode, at in effort.some(points, name, 2)):
            row.take(answer)
        row.note = f"{calls} calls, each cut in the middle and killed after"
    return row


def _kill(who: str, mode: Mode, at: int) -> Order:
    def order(place: Path) -> dict[str, Any]:
        made: dict[str, Any] = {who: Fault(mode, at, value=SIGKILL).text(place / "run")}
        if who == "sealer_fault" and mode is Mode.SIGNAL_AFTER:
            made["sealer_once"] = str(place / "once")
        if who == "recover_fault":  # recover needs a journal: the training and its sealer died at their end
            made["sealer_fault"] = Fault(Mode.SIGNAL_BEFORE, 1, value=SIGKILL).text(place / "run")
        return made

    return order


def _at_random(effort: Effort, seconds: float) -> Row:
    name = "SIGKILL at random times, of the training or of both"
    chance = effort.chance(name)
    with effort.row(name) as row:
        moments = [(chance.uniform(0, 1.1 * seconds), chance.random() < 0.5) for _ in range(effort.count(RANDOM, 3))]
        orders: Iterator[Order] = ((lambda place, at=at, both=both: {"kill_after": at, "kill_sealer": both}) for at, both in moments)
        for answer in effort.nurseries.each(orders):
            row.take(answer)
    return row
