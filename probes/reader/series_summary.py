"""Figures of a series, computed capture by capture; and of several series a row each, to compare the layers of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.clock import Clock
from probes.printable import counted
from probes.reader.series import Series
from probes.transforms.kernels.moments import Moments, joined, of_doubles

BLOCK = 1 << 18  # elements that are widened to float64 at a time
STATS = ("mean", "min", "max", "nan", "+inf", "-inf")


def moments_of(values: NDArray[Any]) -> Moments:
    """The moments of an array of any shape; for complex numbers those of the magnitudes."""
    flat = values.reshape(-1)
    parts = (flat[start : start + BLOCK] for start in range(0, len(flat), BLOCK))
    with np.errstate(over="ignore"):  # the spread of huge values is infinite, and shown so
        return joined([of_doubles((np.abs(part) if np.iscomplexobj(part) else part).astype("f8")) for part in parts])


def figures(moments: Moments) -> dict[str, float | int | None]:
    """min, mean, std, max (None if no number is finite) and the counts."""
    known = moments.finite > 0
    return {
        "min": moments.low if known else None,
        "mean": moments.mean if known else None,
        "std": moments.std() if known else None,
        "max": moments.high if known else None,
        "nan": moments.nans,
        "inf": moments.above + moments.below,
        "zero": moments.zeros,
    }


@dataclass
class CaptureSummary:
    """One capture in figures.

    Attributes:
        clock: where it was taken.
        shape: its sizes.
        moments: of its values.
        values: the values themselves, if they are few.
    """

    clock: Clock
    shape: tuple[int, ...]
    moments: Moments
    values: list[Any] | None


@dataclass(repr=False)
class SeriesSummary:
    """A series in figures.

    Attributes:
        total: of all values.
        rows: of each capture.
        means: (captures,) the mean of each; NaN if none is finite.
        values: the values of every capture, if they were requested.
    """

    total: Moments = field(default_factory=Moments)
    rows: list[CaptureSummary] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    values: list[list[float]] = field(default_factory=list)

    def __repr__(self) -> str:
        text = ", ".join(f"{name} {value}" for name, value in figures(self.total).items())
        return f"<SeriesSummary: {counted(len(self.means), 'capture')}, {text}>"


def summarize(series: Series, limit: int, few: int, keep: bool = False) -> SeriesSummary:
    """Summarize a series; needs memory for one capture and a few numbers for each.

    Args:
        series: what to summarize.
        limit: how many captures are kept as rows, the first and the last ones.
        few: up to how many values a row keeps them.
        keep: whether the values of every capture are kept.
    """
    summary, count = SeriesSummary(), len(series)
    head, tail = (count, 0) if count <= limit else (limit - limit // 2, limit // 2)
    for index, capture in enumerate(series):
        moments = moments_of(capture.value)
        summary.total = summary.total.joined(moments)
        summary.means.append(moments.mean if moments.finite else nan)
        if keep:
            summary.values.append(capture.value.reshape(-1).tolist())
        if index < head or index >= count - tail:
            values = capture.value.reshape(-1).tolist() if capture.value.size <= few else None
            summary.rows.append(CaptureSummary(capture.clock, capture.value.shape, moments, values))
    return summary


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
