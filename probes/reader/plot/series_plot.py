"""The picture of one series: lines, a histogram over time, a heat map, or images."""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from probes.clock import SeriesKey
from probes.errors import UsageError
from probes.reader.plot.axes import GAP, axes_or_new, heat_map
from probes.reader.selected import Capture
from probes.signature import Signature

FEW = 12  # limit of numbers of a capture that are drawn as lines
MOST_IMAGES = 64


class DrawnSeries(Protocol):
    """The part of a `Series` that pictures need."""

    @property
    def key(self) -> SeriesKey:
        """Its name."""

    @property
    def word(self) -> str:
        """Its name as text."""

    @property
    def dims(self) -> tuple[str, ...] | None:
        """Names of the axes of a capture."""

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The different shapes of the captures."""

    @property
    def signature(self) -> Signature:
        """Names and labels of the axes."""

    @property
    def clocks(self) -> NDArray[Any]:
        """(captures,) their clocks."""

    def masked(self) -> np.ma.MaskedArray[Any, Any]:
        """All captures in one array."""

    def __getitem__(self, index: int) -> Capture:
        """One capture."""

    def __len__(self) -> int:
        """The number of captures."""


def plot_series(series: DrawnSeries, axes: Any = None, capture: int = -1) -> Any:
    """Draw a series over `global_step`, or one of its captures where that is an image; see `SeriesSet.plot` for several.

    Args:
        series: of one dtype.
        axes: of matplotlib; by default those of a new figure.
        capture: the capture to draw as images, counted from the end if negative.

    Returns:
        The axes.

    Raises:
        MissingExtra: matplotlib is not installed.
        UsageError: the captures have another number of axes each.
    """
    shapes = series.shapes
    ranks = {len(shape) for shape in shapes}
    if len(ranks) > 1:
        raise UsageError(f"the captures of `{series.word}` have {' or '.join(map(str, sorted(ranks)))} axes; plot a selection of them")
    drawn = axes_or_new(axes)
    drawn.set_title(series.word, fontsize="medium", parse_math=False)
    if max(ranks) > 1:
        return _images(drawn, series, capture)
    values = real(series.masked()).reshape(len(series), -1)
    steps = series.clocks["global_step"].astype(float)
    labels = _labels(series)
    if labels[:1] == ["under"] and labels[-1:] == ["nan"]:
        return _histogram(drawn, steps, values, labels)
    if values.shape[1] <= FEW:
        return _lines(drawn, steps, values, labels)
    mesh = heat_map(drawn, *_by_step(steps, values.T))
    mesh.colorbar.set_label("value")
    drawn.set_ylabel((series.dims or ("index",))[0])
    return drawn


def real(values: np.ma.MaskedArray[Any, Any]) -> NDArray[np.float64]:
    """Numbers as floats, NaN if they are masked; complex ones as their magnitudes."""
    plain = np.ma.getdata(values)
    found = (np.abs(plain) if plain.dtype.kind == "c" else plain).astype(np.float64)
    return np.where(np.ma.getmaskarray(values), np.nan, found)


def _labels(series: DrawnSeries) -> list[str]:
    dims = series.dims or ()
    return [str(label) for label in series.signature.coords.get(dims[0], ())] if dims else []


def _by_step(steps: NDArray[Any], rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """One column for each step; of several captures in a step, such as later calls, the last."""
    order = np.argsort(steps, kind="stable")
    last = np.append(np.diff(steps[order]) != 0, True)
    return steps[order][last], rows[:, order][:, last]


def _lines(axes: Any, steps: NDArray[Any], values: NDArray[Any], labels: list[str]) -> Any:
    order = np.argsort(steps, kind="stable")
    with np.errstate(invalid="ignore"):
        finite = np.where(np.isfinite(values), values, np.nan)
    for index, column in enumerate(finite.T):
        name = labels[index] if labels else str(index) if values.shape[1] > 1 else None
        axes.plot(steps[order], column[order], label=name, marker="." if len(steps) < 50 else None)
    positive = finite[np.isfinite(finite) & (finite != 0)]
    if len(positive) and abs(positive).max() > 1000 * abs(positive).min():
        axes.set_yscale("symlog", linthresh=float(abs(positive).min()))
    if values.shape[1] > 1:
        axes.legend(fontsize="small", ncols=2)
    axes.set_xlabel("global_step")
    return axes


def _histogram(axes: Any, steps: NDArray[Any], values: NDArray[Any], labels: list[str]) -> Any:
    """The share of each bin over time; the shares outside of the bounds, and of NaN, are in the title."""
    steps, counts = _by_step(steps, values.T)
    inner = [label.strip("[])").split(", ") for label in labels[1:-2]]
    edges = np.array([*(float(low) for low, _ in inner), float(inner[-1][1])])
    with np.errstate(invalid="ignore"):
        mesh = heat_map(axes, steps, counts[1:-2] / counts.sum(axis=0), edges)
    mesh.colorbar.set_label("share of the elements")
    axes.set_ylabel("value")
    outside = {name: counts[index].sum() / max(counts.sum(), 1) for name, index in (("below", 0), ("above", -2), ("NaN", -1))}
    said = ", ".join(f"{share:.2g} {name}" for name, share in outside.items() if share)
    axes.set_title(axes.get_title() + (f"\n(not shown: {said})" if said else ""), fontsize="medium", parse_math=False)
    return axes


def _images(axes: Any, series: DrawnSeries, capture: int) -> Any:
    """The last two axes of a capture as images: of a batch the first sample, of the rest up to `MOST_IMAGES`."""
    found = series[capture]
    whole = real(np.ma.MaskedArray(found.value))
    names = list(series.dims or [f"dim_{axis}" for axis in range(whole.ndim)])
    if whole.ndim > 3:
        whole, names = whole[(0,) * (whole.ndim - 3)], names[whole.ndim - 3 :]
    images = whole[None] if whole.ndim == 2 else whole[:MOST_IMAGES]
    tiled = np.ma.masked_invalid(_tiled(images))
    image = axes.imshow(tiled, interpolation="nearest", aspect="equal" if len(images) > 1 else "auto")
    axes.set_facecolor(GAP)
    axes.figure.colorbar(image, ax=axes).set_label("value")
    axes.set(xlabel=names[-1], ylabel=names[-2])
    if len(images) > 1:
        axes.set(xticks=[], yticks=[], xlabel=f"{len(images)} of {len(whole)} along {names[-3]}: {names[-1]}")
    clock = found.clock
    axes.set_title(f"{axes.get_title()}\nglobal_step {clock.global_step}", fontsize="medium", parse_math=False)
    return axes


def _tiled(images: NDArray[Any]) -> NDArray[Any]:
    """Images side by side in a square, with a gap of NaN between them."""
    count, height, width = images.shape
    if count == 1:
        return np.asarray(images[0])
    across = ceil(sqrt(count))
    sheet = np.full((ceil(count / across) * (height + 1) - 1, across * (width + 1) - 1), np.nan)
    for index, image in enumerate(images):
        top, left = index // across * (height + 1), index % across * (width + 1)
        sheet[top : top + height, left : left + width] = image
    return sheet
