"""A table with a row for each series of a pattern: last, min, max, NaN and a sparkline."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from math import isfinite
from typing import Any

from probes.commands.rendering.table import number, sparkline, table
from probes.reader.layer_figures import LayerFigures

SORTS = ("name", "last", "min", "max", "nan")
BARS = 24
LEAST = 16  # characters of a name that are left at least


def in_order(rows: Sequence[LayerFigures], sort: str) -> list[LayerFigures]:
    """The rows by name, or by a figure, the largest first; rows without the figure come last."""
    if sort == "name":
        return list(rows)

    def key(row: LayerFigures) -> tuple[bool, float]:
        figures = {"last": row.last, "min": row.low, "max": row.high, "nan": float(row.nans)}
        found = figures[sort]
        return (False, -found) if found is not None and isfinite(found) else (True, 0.0)

    return sorted(rows, key=key)


def layers_text(rows: Sequence[LayerFigures]) -> str:
    """Return the table; on a terminal names are shortened in the middle to its width."""
    cells = [
        [row.series.word, str(row.captures), *map(number, (row.last, row.low, row.high, row.nans, row.infs)), sparkline(row.means, BARS)]
        for row in rows
    ]
    header = ["series", "captures", "last", "min", "max", "nan", "inf", "mean of each capture"]
    rest = sum(max(len(header[column]), *(len(row[column]) for row in cells)) + 2 for column in range(1, len(header)))
    width = shutil.get_terminal_size().columns - rest if sys.stdout.isatty() else max(len(row[0]) for row in cells)
    shown = [[shortened(name, max(width, LEAST)), *others] for name, *others in cells]
    return table(header, shown, right=header[1:-1])


def shortened(name: str, width: int) -> str:
    """A name of at most `width` characters; what is too long loses its middle."""
    if len(name) <= width:
        return name
    kept = width - 1
    return f"{name[: kept - kept // 2]}…{name[len(name) - kept // 2 :]}"


def layers_data(rows: Sequence[LayerFigures]) -> list[dict[str, Any]]:
    """Return the rows as plain data; a number that is not finite is null."""
    return [
        {
            "series": row.series.word,
            "captures": row.captures,
            "last": _finite(row.last),
            "min": row.low,
            "max": row.high,
            "nan": row.nans,
            "inf": row.infs,
            "means": [_finite(mean) for mean in row.means],
        }
        for row in rows
    ]


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None
