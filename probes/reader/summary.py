"""Figures of a series, taken capture by capture."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.clock import Clock
from probes.reader.series import Series

BLOCK = 1 << 18  # elements that are widened to float64 at a time


@dataclass
class Moments:
    """Count, mean, spread and extremes of numbers; those that are not finite are counted and left out.

    Attributes:
        count: finite numbers.
        mean: of them.
        spread: sum of squared deviations from the mean.
        low: smallest.
        high: largest.
        nans: how many are not a number.
        infinities: how many are infinite.
        zeros: how many are zero.
    """

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0
    low: float = inf
    high: float = -inf
    nans: int = 0
    infinities: int = 0
    zeros: int = 0

    def add(self, values: NDArray[Any]) -> None:
        """Take an array in; of complex numbers their absolute values."""
        flat = values.reshape(-1)
        with np.errstate(over="ignore"):  # the spread of huge values is infinite, and said to be
            for start in range(0, len(flat), BLOCK):
                part = flat[start : start + BLOCK]
                self._add(np.abs(part).astype("f8") if np.iscomplexobj(part) else part.astype("f8"))

    def merge(self, other: Moments) -> None:
        """Take in what another has taken."""
        count = self.count + other.count
        if other.count:
            shift = other.mean - self.mean
            self.mean += shift * other.count / count
            self.spread += other.spread + shift * shift * self.count * other.count / count
        self.count = count
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.nans += other.nans
        self.infinities += other.infinities
        self.zeros += other.zeros

    def figures(self) -> dict[str, float | int | None]:
        """min, mean, std, max (None where no number is finite) and the counts."""
        known = self.count > 0
        return {
            "min": self.low if known else None,
            "mean": self.mean if known else None,
            "std": sqrt(self.spread / self.count) if known else None,
            "max": self.high if known else None,
            "nan": self.nans,
            "inf": self.infinities,
            "zero": self.zeros,
        }

    def _add(self, values: NDArray[np.float64]) -> None:
        nans = int(np.isnan(values).sum())
        finite = values[np.isfinite(values)]
        part = Moments(nans=nans, infinities=len(values) - nans - len(finite), zeros=int((finite == 0).sum()))
        if len(finite):
            part.count, part.mean = len(finite), float(finite.mean())
            part.spread = float(((finite - part.mean) ** 2).sum())
            part.low, part.high = float(finite.min()), float(finite.max())
        self.merge(part)


@dataclass
class CaptureSummary:
    """One capture in figures.

    Attributes:
        clock: where it was taken.
        shape: its sizes.
        moments: of its values.
        values: the values themselves, where they are few.
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
        means: (captures,) the mean of each; NaN where none is finite.
        values: the values of every capture, where they were asked for.
    """

    total: Moments = field(default_factory=Moments)
    rows: list[CaptureSummary] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    values: list[list[float]] = field(default_factory=list)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value}" for name, value in self.total.figures().items())
        return f"<SeriesSummary: {len(self.means)} captures, {figures}>"


def summarize(series: Series, limit: int, few: int, keep: bool = False) -> SeriesSummary:
    """The figures of a series; memory is that of one capture and a few numbers for each.

    Args:
        series: what to summarize.
        limit: how many captures are kept as rows, the first and the last ones.
        few: up to how many values a row keeps them.
        keep: whether the values of every capture are kept.
    """
    summary, count = SeriesSummary(), len(series)
    head, tail = (count, 0) if count <= limit else (limit - limit // 2, limit // 2)
    for index, capture in enumerate(series):
        moments = Moments()
        moments.add(capture.value)
        summary.total.merge(moments)
        summary.means.append(moments.mean if moments.count else nan)
        if keep:
            summary.values.append(capture.value.reshape(-1).tolist())
        if index < head or index >= count - tail:
            values = capture.value.reshape(-1).tolist() if capture.value.size <= few else None
            summary.rows.append(CaptureSummary(capture.clock, capture.value.shape, moments, values))
    return summary
