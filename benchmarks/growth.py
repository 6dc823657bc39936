"""Whether a capture costs the same whatever has gone before, and whatever the number of modules; and what memory grows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import torch

from benchmarks.row import Row
from benchmarks.stack import MODULES, Probed, call, stack
from benchmarks.turns import Interval, by_turns, interval, ratios

CAPTURES = 1_000_000
BLOCK = 40  # steps: a thousand captures
GROWN = "Written pages wait in the system's cache for the device, and the allocator rounds up."
MANY = "Five thousand captures do not fit the processor's caches, twenty-five do."
TOPIC = "Growth, captures of 1 KiB"


def rows(folder: Path) -> Iterator[Row]:
    x = torch.randn(256)
    yield from captures(folder, x)
    yield modules(folder, x)
    yield from epochs(folder, x)


def captures(folder: Path, x: torch.Tensor) -> Iterator[Row]:
    with ExitStack() as exits:
        run = Probed(exits, folder, stack(), lambda model: model(x), hook="forward")
        run.seconds(BLOCK)
        first = [run.seconds(BLOCK) for _ in range(20)]
        before = resident(os.getpid())
        for _ in range(CAPTURES // MODULES // BLOCK - 40):
            run.seconds(BLOCK)
        after = resident(os.getpid())
        last = [run.seconds(BLOCK) for _ in range(20)]
    base = median(first)
    grown = interval([seconds / base for seconds in last])
    yield Row(TOPIC, "a capture after 10⁶ captures, divided by one after 10³", grown, "x", "<= 1.15", 1, GROWN)
    yield Row(
        TOPIC,
        "resident memory of the training process after 10⁶ captures, divided by that after 10⁴",
        _one(after / before),
        "x",
        "<= 1.05",
        1,
    )


def modules(folder: Path, x: torch.Tensor) -> Row:
    with ExitStack() as exits:
        few, many = (Probed(exits, folder, stack(count), lambda model: model(x), hook="forward") for count in (10, 5000))
        found = by_turns(
            {
                "few": lambda: few.seconds(500) - call(stack(10), x, range(500)),
                "many": lambda: many.seconds(1) - call(stack(5000), x, range(1)),
            },
            31,
        )
    return Row(
        TOPIC, "a capture with 5,000 probed modules, divided by one with 10", ratios(found, "many", "few"), "x", "<= 1.15", 0.9, MANY
    )


def epochs(folder: Path, x: torch.Tensor) -> Iterator[Row]:
    with ExitStack() as exits:
        probed = Probed(exits, folder, stack(), lambda model: model(x), hook="forward")
        run, marks = probed.run, {}
        for epoch in range(1, 101):
            run.engine.hear(run.engine.clock.epoch_begins, epoch)
            probed.seconds(4)
            if epoch in (20, 100):
                sealer = run.recording.sealer._child
                assert sealer is not None
                marks[epoch] = [resident(os.getpid()), resident(sealer.pid)]
    for place, (before, after) in enumerate(zip(marks[20], marks[100], strict=True)):
        who = "the sealer" if place else "the training process"
        yield Row(
            TOPIC, f"resident memory of {who} after 100 epochs, divided by that after 20", _one(after / before), "x", "<= 1.05", 1, GROWN
        )


def resident(process: int) -> int:
    """Pages in memory."""
    return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])


def _one(value: float) -> Interval:
    return Interval(value, value, value)
