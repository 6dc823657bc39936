"""A line of figures for each series, to compare the layers of a model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.reader.series import Series
from probes.reader.series_summary import summarize

STATS = ("mean", "min", "max", "nan", "+inf", "-inf")


class LayerFigures(NamedTuple):
    """The figures of one series.

    Attributes:
        series: the series.
        captures: how many captures it has.
        last: the mean of the last capture, over its finite numbers; NaN if it has none.
        low: the smallest finite number of all captures; None if there is none.
        high: the largest one.
        nans: how many numbers are NaN.
        infs: how many are infinite.
        means: the mean of each capture, in order.
    """

    series: Series
    captures: int
    last: float
    low: float | None
    high: float | None
    nans: int
    infs: int
    means: list[float]


def layer_figures(series: Series) -> LayerFigures:
    """The figures of a series with at least one capture; those of `stats` describe the original values."""
    labels = list(series.signature.coords.get("stat", ()))
    if series.signature.dims == ("stat",) and set(STATS) <= set(labels):
        mean, low, high, nans, *infs = (series.numpy()[:, labels.index(name)] for name in STATS)
        return LayerFigures(
            series, len(series), float(mean[-1]), _end(low, 0), _end(high, -1), int(nans.sum()), int(np.sum(infs)), mean.tolist()
        )
    summary = summarize(series, 0, 0)
    total = summary.total
    known = total.finite > 0
    return LayerFigures(
        series,
        len(series),
        summary.means[-1],
        float(total.low) if known else None,
        float(total.high) if known else None,
        total.nans,
        total.above + total.below,
        summary.means,
    )


def _end(numbers: NDArray[np.float64], index: int) -> float | None:
    """The smallest finite number (0) or the largest (-1)."""
    finite = np.sort(numbers[np.isfinite(numbers)])
    return float(finite[index]) if len(finite) else None
