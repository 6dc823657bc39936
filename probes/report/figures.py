"""The numbers of a series that form a line over steps: stored numbers, or figures of each capture."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from probes.reader.series import Series
from probes.reader.series_summary import figures, moments_of

BIN = "bin"
MOST_LABELS = 16
MOST_READ = 1 << 28  # limit of bytes of one series that are read; of a larger one every n-th capture
PLACES = ("microstep", "call", "backward")
MOST_PLACES = 16
UNKNOWN = np.uint64((1 << 64) - 1)


@dataclass(frozen=True)
class Lines:
    """The lines of one series at one place, such as its second call.

    Attributes:
        series: the series.
        rank: the process that captured them; None if the series is of one.
        place: what tells these captures from the others of the same steps and rank, such as `call 1`; empty if nothing does.
        steps: (captures,) the global step of each, ascending.
        figures: (captures,) by name; the name is empty if a capture is one number.
        stored: whether the file holds these numbers, and not the values that they describe.
    """

    series: Series
    rank: int | None
    place: str
    steps: NDArray[np.int64]
    figures: dict[str, NDArray[np.generic]]
    stored: bool


def labels_of(series: Series) -> tuple[str, ...]:
    """The labels of captures with one labelled axis, such as the statistics of `stats`; else empty."""
    signature = series.signature
    if signature.shape is None or len(signature.shape) != 1 or len(signature.coords) != 1:
        return ()
    (labels,) = signature.coords.values()
    return tuple(f"{label:g}" if isinstance(label, float) else str(label) for label in labels) if signature.shape == (len(labels),) else ()


def is_histogram(series: Series) -> bool:
    """Whether the captures are counts by bin."""
    return series.signature.dims == (BIN,) and bool(labels_of(series))


def is_one_number(series: Series) -> bool:
    """Whether each capture is one number."""
    shape = series.signature.shape
    return shape is not None and None not in shape and prod(size or 0 for size in shape) == 1


def lines_of(series: Series) -> list[Lines]:
    """The lines of a series of one dtype that has a capture: one for each rank and each place of the clock within a step."""
    chosen, numbers, stored = _numbers(series)
    clocks = series.clocks[chosen]
    steps, found = global_steps(clocks), []
    ranks = np.unique(clocks["rank"]).tolist()
    for rank in ranks:
        of_rank = np.flatnonzero(clocks["rank"] == rank)
        for place, at in _places(clocks[of_rank]):
            rows = of_rank[at]
            order = rows[np.argsort(steps[rows], kind="stable")]
            columns = {name: column[order] for name, column in numbers.items()}
            found.append(Lines(series, rank if len(ranks) > 1 else None, place, steps[order], columns, stored))
    return found


def global_steps(clocks: NDArray[np.void]) -> NDArray[np.int64]:
    """(captures,) the global steps; if one is not known, the position among the steps of these captures."""
    steps: NDArray[np.uint64] = clocks["global_step"]
    if not (steps == UNKNOWN).any():
        return steps.astype(np.int64)
    return np.unique(clocks[["epoch", "step"]], return_inverse=True)[1].astype(np.int64)


def _numbers(series: Series) -> tuple[NDArray[np.intp], dict[str, NDArray[np.generic]], bool]:
    """Positions of the captures that were read, their numbers by name, and whether these are stored."""
    every = np.arange(len(series))
    labels = labels_of(series)
    if is_one_number(series) and not series.dtype.startswith("complex"):
        return every, {"": series.numpy().reshape(-1)}, True
    if labels and (len(labels) <= MOST_LABELS or is_histogram(series)):
        table = series.numpy()
        kept = (0, -2, -1) if is_histogram(series) else range(len(labels))
        return every, {labels[at]: table[:, at] for at in kept}, True
    chosen = evenly(len(series), max(2, MOST_READ * len(series) // max(series.nbytes, 1)))
    rows = [figures(moments_of(series[int(at)].value)) for at in chosen]
    columns = {name: np.array([np.nan if row[name] is None else row[name] for row in rows], float) for name in rows[0]}
    return chosen, dict(columns), False


def evenly(count: int, most: int) -> NDArray[np.intp]:
    """At most `most` of the positions 0 to `count` - 1, evenly spaced, with the first and the last; ascending."""
    return np.arange(count) if count <= most else np.unique(np.linspace(0, count - 1, most).round().astype(np.intp))


def _places(clocks: NDArray[np.void]) -> list[tuple[str, NDArray[np.intp]]]:
    """The captures by their place within a step; together if there are too many places for a line each."""
    varying = [name for name in PLACES if len(np.unique(clocks[name])) > 1]
    if not varying:
        return [("", np.arange(len(clocks)))]
    kinds, of = np.unique(clocks[varying], return_inverse=True)
    if len(kinds) > MOST_PLACES:
        return [(f"all of {len(kinds)} calls of a step", np.arange(len(clocks)))]
    order = np.argsort(of, kind="stable")
    cuts = np.searchsorted(of[order], np.arange(len(kinds) + 1))
    names = (", ".join(f"{name} {kind[name]}" for name in varying) for kind in kinds)
    return [(name, order[low:high]) for name, (low, high) in zip(names, pairwise(cuts), strict=True)]
