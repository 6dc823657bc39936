"""Numbers of a whole tensor from the numbers of its parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]


def _stats(parts: Sequence[Numbers]) -> Numbers:
    """The ten numbers of the transform `stats`; see `probes.transforms.stats.STATS`."""
    rows = np.stack(parts)
    count, mean, std, low, high, l2, *counts = rows.T
    finite = count - np.sum(counts[1:], axis=0)
    some = finite > 0
    total = finite.sum()
    if not total:
        return np.array([count.sum(), *[np.nan] * 4, 0.0, *(one.sum() for one in counts)])
    middle = (mean[some] * finite[some]).sum() / total
    spread = ((std[some] ** 2 + (mean[some] - middle) ** 2) * finite[some]).sum()
    about = [middle, np.sqrt(spread / total), low[some].min(), high[some].max(), np.sqrt((l2**2).sum())]
    return np.array([count.sum(), *about, *(one.sum() for one in counts)])


def _root_of_squares(parts: Sequence[Numbers]) -> Numbers:
    wide = np.stack(parts).astype(np.float64)
    return np.asarray(np.sqrt((wide**2).sum(axis=0)), parts[0].dtype)


def _sum(parts: Sequence[Numbers]) -> Numbers:
    wide = np.stack(parts)
    return np.asarray(wide.sum(axis=0, dtype=np.float64 if wide.dtype.kind == "f" else None), parts[0].dtype)


def _largest(parts: Sequence[Numbers]) -> Numbers:
    return np.asarray(np.stack(parts).max(axis=0))


def _moments(parts: Sequence[Numbers]) -> Numbers:
    """Count, nonfinite, mean, variance, min and max of `accumulate`, at each position."""
    rows = np.stack(parts)
    found = _with_means(rows)
    count, mean = rows[:, 0], _known(rows[:, 0], rows[:, 2])
    spread = _known(count, rows[:, 3]) + (mean - np.where(found[0] > 0, found[2], 0.0)) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        found[3] = (count * spread).sum(axis=0) / found[0]
    found[4], found[5] = np.fmin.reduce(rows[:, 4]), np.fmax.reduce(rows[:, 5])
    return found


def _covariance(parts: Sequence[Numbers]) -> Numbers:
    """Counts, nonfinite, means and covariance matrix of `accumulate`."""
    rows = np.stack(parts)
    found = _with_means(rows)
    count = rows[:, 0, :1]
    apart = np.where(count > 0, _known(rows[:, 0], rows[:, 2]) - np.where(found[0] > 0, found[2], 0.0), 0.0)
    squares = _known(count[:, None], rows[:, 3:]) + apart[:, :, None] * apart[:, None, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        found[3:] = (count[:, None] * squares).sum(axis=0) / found[0]
    return found


def _with_means(rows: Numbers) -> Numbers:
    """A result with the counts and means of all parts."""
    found = np.full(rows.shape[1:], np.nan)
    found[:2] = rows[:, :2].sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        found[2] = (rows[:, 0] * _known(rows[:, 0], rows[:, 2])).sum(axis=0) / found[0]
    return found


def _known(count: Numbers, numbers: Numbers) -> Numbers:
    """Numbers, with zero for those of no elements."""
    return np.where(count > 0, numbers, 0.0)


def merge_of(transforms: Sequence[Mapping[str, Any]], reduced: Collection[int] = ()) -> str | None:
    """The rule that merges the results of transforms on parts: a name in `MERGES`, or `BY_ELEMENT`; None if there is none.

    Args:
        transforms: their settings, as the resolved spec has them.
        reduced: the axis along which the parts are cut, where it is one; what reduces it can be merged.
    """
    if not transforms:
        return BY_ELEMENT
    *before, last = transforms
    if any(one.get("kind") not in ELEMENTWISE or one.get("mask") for one in before):
        return None
    if last.get("kind") in ELEMENTWISE:
        return BY_ELEMENT
    what, dims = last.get("what") or ("moments" if last.get("kind") == "accumulate" else ""), last.get("dims")
    order = last.get("order") or ("l2" if last.get("kind") == "norm" else "")
    name = " ".join(filter(None, (str(last.get("kind")), order, what)))
    of_samples = what == "sums"  # whose parts are those of the samples, the first axis
    whole = (dims is None and not of_samples) or bool(reduced and ((of_samples and 0 in reduced) or set(dims or ()) & set(reduced)))
    return name if name in MERGES and whole and not last.get("mask") else None


ELEMENTWISE = ("abs", "cast", "difference")
BY_ELEMENT = ""

MERGES: Mapping[str, Callable[[Sequence[Numbers]], Numbers]] = {
    "stats": _stats,
    "norm l2": _root_of_squares,
    "norm l1": _sum,
    "norm l0": _sum,
    "norm linf": _largest,
    "histogram": _sum,
    "accumulate moments": _moments,
    "accumulate covariance": _covariance,
    "accumulate sums": _sum,
}
"""The rule that merges the results of a transform on parts without common elements."""
