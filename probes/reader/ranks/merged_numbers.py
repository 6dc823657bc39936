"""Numbers of a whole tensor from the numbers of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


MERGES: Mapping[str, Callable[[Sequence[Numbers]], Numbers]] = {
    "stats": _stats,
    "norm l2": _root_of_squares,
    "norm l1": _sum,
    "norm l0": _sum,
    "norm linf": _largest,
    "histogram": _sum,
}
"""How the results of a transform on parts without common elements make that of all elements."""
