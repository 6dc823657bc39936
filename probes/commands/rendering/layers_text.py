"""A table with a row for each series of a pattern: last, min, max, NaN and a sparkline."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from probes.commands.rendering.table import number, sparkline, table
from probes.printable import INDENT
from probes.reader.series_summary import LayerFigures

SORTS = ("name", "last", "min", "max", "nan")
BARS = 24
FEW_BARS = 12


def in_order(rows: Sequence[LayerFigures], sort: str) -> list[LayerFigures]:
    """Sort the rows by name, or by a figure, the largest first; rows without the figure come last."""
    if sort == "name":
        return list(rows)

    def key(row: LayerFigures) -> tuple[bool, float]:
        figures = {"last": row.last, "min": row.low, "max": row.high, "nan": float(row.nans)}
        found = figures[sort]
        return (False, -found) if found is not None and isfinite(found) else (True, 0.0)

    return sorted(rows, key=key)


def layers_text(rows: Sequence[LayerFigures]) -> str:
    """Return the table; its sparklines are short if long names need the space."""
    text = _drawn(rows, "mean of each capture", BARS)
    return text if f"\n{INDENT}" not in text else _drawn(rows, "means", FEW_BARS)


def _drawn(rows: Sequence[LayerFigures], means: str, bars: int) -> str:
    cells = [
        [row.series.word, str(row.captures), *map(number, (row.last, row.low, row.high, row.nans, row.infs)), sparkline(row.means, bars)]
        for row in rows
    ]
    header = ["series", "captures", "last", "min", "max", "nan", "inf", means]
    return table(header, cells, right=header[1:-1], kept=header[-1:])


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
