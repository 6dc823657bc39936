"""Samples as points: the rows of captures, projected onto the two directions in which they vary most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype
from probes.errors import ProbesError
from probes.printable import one_line
from probes.reader.series import Series
from probes.report.figures import evenly, global_steps
from probes.report.plain_numbers import plain

FEWEST_POINTS, MOST_POINTS = 3, 1000
MOST_FEATURES = 1 << 16  # limit of elements of a row
MOST_READ = 1 << 22  # limit of elements of a series
MOST_BYTES = 1 << 28  # limit for the captures of a series that are read
MOST_SERIES = 16
SAMPLES = ("batch", "sample", "samples", "image", "images", "row", "dim_0")  # parts of the names of labels
ROOTS = ("input", "output")
LIKELY = ("label", "target", "class")  # in the name of labels


def embeddings(drawn: Sequence[Series], every: Sequence[Series]) -> tuple[list[dict[str, Any]], int]:
    """The projections of some series as plain data, and how many series were left out because the page has no room for them.

    Args:
        drawn: series that have axes, in the order in which they are shown.
        every: all series of the run, among which it finds labels.
    """
    fitting = [one for one in drawn if _has_samples(one)]
    found = (_projected(one, every) for one in fitting[:MOST_SERIES])
    return [one for one in found if one is not None], max(0, len(fitting) - MOST_SERIES)


def _has_samples(series: Series) -> bool:
    """Whether the first axis is that of samples, by its name, and each sample has features."""
    shape, dims = series.signature.shape, series.signature.dims
    if shape is None or len(shape) < 2 or None in shape[1:] or series.dtype.startswith(("complex", "bool")):
        return False
    features = int(np.prod([size or 0 for size in shape[1:]]))
    named = dims is None or dims[0] in SAMPLES
    return named and not series.signature.coords and 2 <= features <= MOST_FEATURES and series.key.leaf.partition(".")[0] in ROOTS


def _projected(series: Series, every: Sequence[Series]) -> dict[str, Any] | None:
    """The rows of the last epoch of a series as points; None if there are too few, or all are equal."""
    sizes, epoch = series.row_sizes, int(series.clocks["epoch"].max())
    of_epoch = np.flatnonzero(series.clocks["epoch"] == epoch)
    read = of_epoch[evenly(len(of_epoch), max(1, MOST_BYTES * len(series) // max(1, series.nbytes)))]
    which, row = _chosen(series, read)
    values = _rows(series, which, row)
    finite = np.isfinite(values).all(axis=1)
    projection = projected(values[finite]) if finite.sum() >= FEWEST_POINTS else None
    if projection is None:
        return None
    which, row, (points, share) = which[finite], row[finite], projection
    place = np.concatenate([[0], np.cumsum(sizes)])[which] + row  # index among the rows of all epochs
    name, labels = _labels(series, of_epoch, every)
    ids, key = _ids(series), series.key
    return {
        "kind": "samples",
        "probe": key.probe,
        "target": key.target,
        "leaf": key.leaf,
        "phase": key.phase,
        "x": _short(points[:, 0]),
        "y": _short(points[:, 1]),
        "share": _short(share),
        "steps": global_steps(series.clocks)[which].tolist(),
        "ids": [one_line(str(one)) for one in ids[place]] if len(ids) else [],
        "labels": plain(labels[place - sizes[: of_epoch[0]].sum()]) if name else [],
        "labelled": name,
        "epoch": epoch,
        "rows": int(sizes[of_epoch].sum()),
        "left": int((~finite).sum()),
    }


def _chosen(series: Series, captures: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(points,) the capture and the row in it of each point, evenly spaced, within the limit of the page."""
    sizes = series.row_sizes[captures]
    elements = max(1, series.nbytes // bits_dtype(series.dtype).itemsize // max(1, int(series.row_sizes.sum())))
    kept = evenly(int(sizes.sum()), max(FEWEST_POINTS, min(MOST_POINTS, MOST_READ // elements)))
    ends = np.cumsum(sizes)
    at = np.searchsorted(ends, kept, side="right")
    return captures[at], kept - (ends - sizes)[at]


def _rows(series: Series, which: NDArray[np.intp], row: NDArray[np.intp]) -> NDArray[np.float64]:
    """(points, features) some rows of some captures; a capture is read once."""
    found = [series[int(at)].value[row[which == at]] for at in np.unique(which)]
    joined = np.concatenate(found) if found else np.empty((0, 1))
    return joined.reshape(len(joined), -1).astype(np.float64)


def projected(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The first two principal components of some rows.

    Args:
        rows: (points, features), finite.

    Returns:
        (points, 2) coordinates, of which the one of the largest magnitude is positive on each axis, and (2,) the share of the variance that
        each axis has; None if all rows are the same.
    """
    largest = np.abs(rows).max()
    scaled = rows / largest if largest > 0 else rows  # so that its squares do not overflow
    centered = scaled - scaled.mean(axis=0)
    few = centered.shape[1] <= centered.shape[0]
    sizes, vectors = np.linalg.eigh(centered.T @ centered if few else centered @ centered.T)
    sizes, vectors = sizes[::-1].clip(min=0), vectors[:, ::-1]
    if not sizes[0] > 1e-28 * max(1.0, float((scaled**2).sum())):
        return None
    points = (centered @ vectors[:, :2] if few else vectors[:, :2] * np.sqrt(sizes[:2])) * largest
    points = points * np.where(points[np.abs(points).argmax(axis=0), [0, 1]] < 0, -1, 1)
    return points, sizes[:2] / sizes.sum()


def _ids(series: Series) -> NDArray[Any]:
    """(rows,) the sample id of each row; empty if the numbers of rows and ids differ."""
    try:
        return series.ids
    except ProbesError:
        return np.empty(0)


def _labels(series: Series, captures: NDArray[np.intp], every: Sequence[Series]) -> tuple[str, NDArray[Any]]:
    """The name and (rows,) labels of the rows of some captures: an integer series with one label for each row of each step."""
    fitting = [one for one in every if one.key.phase == series.key.phase and one.dtype.startswith(("int", "uint")) and _is_vector(one)]
    fitting.sort(key=lambda one: not any(word in one.key.leaf.lower() for word in LIKELY))
    epoch, sizes = int(series.clocks["epoch"][captures[0]]), _rows_of_steps(series, captures)
    for one in fitting:
        same = np.flatnonzero((one.clocks["epoch"] == epoch) & np.isin(one.clocks["step"], [*sizes]))
        if _rows_of_steps(one, same) == sizes:
            return one_line(one.key.leaf), np.concatenate([one[int(at)].value for at in same])
    return "", np.empty(0)


def _is_vector(series: Series) -> bool:
    shape = series.signature.shape
    return shape is not None and len(shape) == 1 and not series.signature.coords


def _rows_of_steps(series: Series, captures: NDArray[np.intp]) -> dict[int, int]:
    """The number of rows of each step of some captures."""
    found: dict[int, int] = {}
    for step, size in zip(series.steps[captures].tolist(), series.row_sizes[captures].tolist(), strict=True):
        found[step] = found.get(step, 0) + size
    return found


def _short(numbers: NDArray[np.float64]) -> list[float]:
    """Numbers of 6 digits: a projection is for drawing, and its last bits depend on the machine."""
    return [float(f"{number:.6g}") for number in numbers]
