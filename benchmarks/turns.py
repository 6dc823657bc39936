"""Timings on a machine whose speed changes: variants alternate, ratios are taken within a turn, medians have an interval."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from time import perf_counter
from typing import Any, NamedTuple

Seconds = dict[str, float]
SHARE = float(os.environ.get("BENCHMARK_SHARE", "1"))  # of the turns, for a quick look


class Interval(NamedTuple):
    """A median and the 95 % interval of it, by order statistics; the extremes where there are fewer than six values."""

    low: float
    median: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The median of some values and the interval that holds the true one in 95 of 100 cases."""
    ordered = sorted(values)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    reach = 1.96 * sqrt(count) / 2
    first = max(int(count / 2 - reach), 0) if count > 5 else 0
    return Interval(ordered[first], middle, ordered[count - 1 - first])


def by_turns(variants: Mapping[str, Callable[[], float]], turns: int, warm: int = 1) -> list[Seconds]:
    """The seconds of every variant in every turn; each turn begins with another variant, and the first ones are thrown away."""
    names, turns = list(variants), max(round(turns * SHARE), 3)
    rows = []
    for turn in range(turns + warm):
        start = turn % len(names)
        rows.append({name: variants[name]() for name in names[start:] + names[:start]})
    return rows[warm:]


def ratios(rows: Sequence[Seconds], above: str, below: str, without: str = "") -> Interval:
    """The ratio of two variants within each turn, both less what a third takes."""
    return interval([(row[above] - row.get(without, 0.0)) / (row[below] - row.get(without, 0.0)) for row in rows])


def seconds(work: Callable[[], Any]) -> float:
    """How long a piece of work takes."""
    began = perf_counter()
    work()
    return perf_counter() - began
