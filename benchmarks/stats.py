"""What `stats` costs, in times of one float32 `sum` of as many elements.

`in cache`: the same tensors at every turn; `from memory`: other tensors at every turn, as in a model whose outputs do not fit the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.row import Row
from benchmarks.turns import Interval, by_turns, ratios, seconds
from probes.transforms.kernels.stats import ROW, stats

ELEMENTS = {"1 MiB": 1 << 18, "16 MiB": 1 << 22}
WORKING_SET = 96 << 20
BARS = {torch.float32: 6, torch.float16: 10, torch.bfloat16: 10}
TOPIC = "`stats`, divided by a float32 sum of the same number of elements"


def readings(values: Tensor) -> None:
    """The readings of its memory that the ten numbers need, by the fastest calls there are, and nothing else."""
    flat = values.numpy()
    rows = flat.reshape(-1, ROW)
    np.minimum.reduce(flat)
    np.maximum.reduce(flat)
    np.vecdot(rows, _ONES)
    np.vecdot(rows, rows)
    np.equal(flat, 0, out=_MARKS[: len(flat)]).any()


_ONES = np.ones(ROW, np.float32)
_MARKS = np.empty(ELEMENTS["16 MiB"], np.bool_)


def ratio(work: Callable[[Tensor], object], captured: Sequence[Tensor], summed: Sequence[Tensor]) -> Interval:
    """The median of many turns through both lists."""
    turns = 301 if len(summed[0]) < 1 << 20 else 61
    taken, base = cycle(captured), cycle(summed)
    found = by_turns({"stats": lambda: seconds(lambda: work(next(taken))), "sum": lambda: seconds(lambda: next(base).sum())}, turns)
    return ratios(found, "stats", "sum")


def rows(_folder: Path) -> Iterator[Row]:
    for size, elements in ELEMENTS.items():
        normal = torch.randn(elements)
        for dtype, bar in BARS.items():
            captured = [normal.to(dtype, copy=True) for _ in range(WORKING_SET // normal.nbytes)]
            summed = [normal.clone() for _ in captured]
            name = str(dtype).removeprefix("torch.")
            in_cache = captured[:1], (captured[:1] if dtype is torch.float32 else summed[:1])
            for where, lists in (("in cache", in_cache), ("from memory", (captured, summed))):
                found = ratio(stats, *lists)
                expected = 8 if where == "in cache" and size == "1 MiB" and dtype is torch.float32 else None
                note = _floor(size, where, ratio(readings, lists[1], lists[1])) if found.low > bar else ""
                yield Row(TOPIC, f"{size} of {name}, {where}", found, "x", f"<= {bar}", expected, note)


def _floor(size: str, where: str, floor: Interval) -> str:
    return (
        f"{size} {where}: a float32 sum reads faster than any other reduction; the five readings that the ten numbers need, alone "
        f"and by NumPy's fastest calls, take {floor.median:.1f} of it ({floor.low:.1f} to {floor.high:.1f})."
    )
