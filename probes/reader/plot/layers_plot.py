"""The picture of many series: a heat map of layers over steps, or a line for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.errors import UsageError
from probes.reader.plot.axes import axes_or_new, heat_map
from probes.reader.plot.series_plot import DrawnSeries, real

MOST_LINES = 12
MOST_NAMES = 40
PREFERRED = ("mean", "l2")


def plot_layers(series: Sequence[DrawnSeries], axes: Any = None, label: str | None = None) -> Any:
    """Draw one number of each series over `global_step`, as a row of a heat map.

    Args:
        series: each of one dtype.
        axes: of matplotlib; by default those of a new figure.
        label: which number of a capture, such as `std` of `stats`; by default `mean`, or of captures without labels the mean.

    Returns:
        The axes.

    Raises:
        MissingExtra: matplotlib is not installed.
        UsageError: a series has no such label.
    """
    drawn = axes_or_new(axes)
    series = sorted(series, key=_in_order)
    columns = [(one.clocks["global_step"], _numbers(one, label)) for one in series]
    steps = np.unique(np.concatenate([found for found, _ in columns]))
    rows = np.full((len(series), len(steps)), np.nan)
    for row, (found, numbers) in zip(rows, columns, strict=True):
        row[np.searchsorted(steps, found)] = numbers
    mesh = heat_map(drawn, steps, rows)
    plain = "value" if all(one.shapes == [()] for one in series) else "mean of the elements"
    mesh.colorbar.set_label(label or _default(series[0]) or plain)
    stride = -(-len(series) // MOST_NAMES)
    drawn.set_yticks(range(0, len(series), stride), [_name(one, series) for one in series[::stride]], fontsize="small", parse_math=False)
    drawn.invert_yaxis()
    probes = sorted({one.key.probe for one in series})
    drawn.set_title(
        ", ".join(probes[:4]) + (" (gray: missing or not finite)" if not np.isfinite(rows).all() else ""),
        fontsize="medium",
        parse_math=False,
    )
    return drawn


def _in_order(series: DrawnSeries) -> list[tuple[bool, int, str]]:
    """Sorts `h.2` before `h.10`."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", series.word)]


def _name(series: DrawnSeries, among: Sequence[DrawnSeries]) -> str:
    """The name of a row, without the part that all rows share; a long name is cut."""
    word = series.word
    probe = f"{series.key.probe}/"
    found = word.removeprefix(probe) if all(one.key.probe == series.key.probe for one in among) else word
    return found if len(found) <= 48 else f"{found[:20]}...{found[-25:]}"


def _default(series: DrawnSeries) -> str | None:
    """The label to draw if none was chosen."""
    labels = _known(series)
    return next((label for label in PREFERRED if label in labels), labels[0] if labels else None)


def _known(series: DrawnSeries) -> list[str]:
    dims = series.dims or ()
    return [str(label) for label in series.signature.coords.get(dims[0], ())] if len(dims) == 1 else []


def _numbers(series: DrawnSeries, label: str | None) -> NDArray[np.float64]:
    """(captures,) one number of each capture."""
    labels = _known(series)
    wanted = label or _default(series)
    if label is not None and label not in labels:
        known = ", ".join(f"`{one}`" for one in labels[:12]) or "no labels"
        raise UsageError(f"`{series.word}` has no `{label}`; it has {known}")
    if wanted is not None:
        return real(series.masked())[:, labels.index(wanted)]
    with np.errstate(invalid="ignore", over="ignore"):
        values = (real(np.ma.MaskedArray(series[index].value)) for index in range(len(series)))
        return np.array([one.mean() if one.size else np.nan for one in values])
