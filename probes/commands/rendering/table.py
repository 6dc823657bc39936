"""Tables, numbers and sparklines as plain text."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

import click

from probes.printable import aligned

BARS = "▁▂▃▄▅▆▇█"
GAP = "·"


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = (), kept: Sequence[str] = (), named: str = ""
) -> str:
    """Return aligned columns under a header; on a terminal the names in wide columns lose characters until a line fits.

    Args:
        header: names of the columns.
        rows: one text per column.
        right: names of the right-aligned columns.
        kept: names of columns that are never shortened.
        named: the column whose names stay distinct; the first one if empty.
    """
    first, *others = aligned(header, rows, right, terminal_width(), kept, named)
    return "\n".join([click.style(first, dim=True), *others])


def terminal_width() -> int | None:
    """Return the width of the terminal that stdout is; None for a pipe or a file, which get the full text."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def number(value: object) -> str:
    """Return a number with four significant digits."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Return values as bars of eight heights; a dot marks values that are not finite. More than `width` values are averaged."""
    if not values:
        return ""
    cuts = [round(index * len(values) / min(width, len(values))) for index in range(min(width, len(values)) + 1)]
    means = [_mean([value for value in values[first:last] if isfinite(value)]) for first, last in pairwise(cuts)]
    finite = [mean for mean in means if mean is not None]
    if not finite:
        return GAP * len(means)
    largest = max(map(abs, finite)) or 1.0  # without this scale the span of huge values would be infinite
    low, span = min(finite) / largest, max(finite) / largest - min(finite) / largest
    return "".join(GAP if mean is None else BARS[round((mean / largest - low) / span * 7) if span else 3] for mean in means)


def _mean(values: Sequence[float]) -> float | None:
    return sum(value / len(values) for value in values) if values else None
