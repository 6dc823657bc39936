"""Captures with axes as pictures: the cells of matrices, attention and feature maps, and vectors over steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype
from probes.reader.series import Series
from probes.report.figures import BIN, evenly, global_steps, is_one_number, labels_of
from probes.report.plain_numbers import plain

MOST_NUMBERS = 240_000  # limit for all pictures of a report, before compression
MOST_CELLS = 64  # limit for a picture, in each direction
MOST_TILES = 16
MOST_SHOTS = 6  # captures of a series that are shown
MOST_COLUMNS = 120  # captures of a vector over steps
MOST_PLACES = 128  # elements of a vector


def pictures(shown: Sequence[Series], most: int) -> tuple[list[dict[str, Any]], int]:
    """The pictures of some series as plain data, and how many series were left out because the page has no room for them.

    Args:
        shown: series of one dtype that have axes, in the order in which they are shown.
        most: numbers in all of them together.
    """
    found: list[dict[str, Any]] = []
    left = most
    for at, one in enumerate(shown):
        share = left // (len(shown) - at) if len(shown) <= 64 else most // 64
        made = _vectors(one, share) if _ndim(one) == 1 else _shots(one, share)
        cost = made.pop("cost")
        if not cost:  # every capture is empty
            continue
        if cost > left:
            return found, len(shown) - at
        left -= cost
        found.append(made)
    return found, 0


def has_axes(series: Series) -> bool:
    """Whether a picture is useful: not for one number, and not for labelled numbers, which are lines already."""
    signature = series.signature
    if signature.shape is None or is_one_number(series) or 0 in signature.shape:
        return False
    return not labels_of(series) or signature.dims == (BIN,)


def _ndim(series: Series) -> int:
    return len(series.signature.shape or ())


def _head(series: Series, kind: str) -> dict[str, Any]:
    key, signature = series.key, series.signature
    names = list(signature.dims or (f"axis {axis}" for axis in range(_ndim(series))))
    place = {"probe": key.probe, "target": key.target, "leaf": key.leaf, "phase": key.phase, "rank": int(series.clocks["rank"][0])}
    return {"kind": kind, **place, "axes": names}


def _vectors(series: Series, share: int) -> dict[str, Any]:
    """A vector over steps, (captures, elements); the counts of a histogram with their bins."""
    labels = labels_of(series)
    likely = min(MOST_PLACES, _elements(series))
    chosen = evenly(len(series), max(1, min(MOST_COLUMNS, share // likely)))
    values = [_real(series[int(at)].value) for at in chosen]
    size = max(map(len, values))
    places = np.arange(size) if labels else evenly(size, MOST_PLACES)
    return {
        **_head(series, "histogram" if labels else "vector"),
        "labels": list(labels),
        "places": places.tolist(),
        "steps": global_steps(series.clocks)[chosen].tolist(),
        "captures": len(series),
        "rows": [_padded(value, places) for value in values],
        "cost": len(places) * len(chosen),
    }


def _shots(series: Series, share: int) -> dict[str, Any]:
    """Some captures of a series with two or more axes: the last two make a picture, the third last makes tiles, of the others index 0."""
    likely = min(MOST_TILES * MOST_CELLS * MOST_CELLS, _elements(series))
    chosen = evenly(len(series), max(2, min(MOST_SHOTS, share // likely)))
    steps = global_steps(series.clocks)
    values = ((int(steps[at]), _real(series[int(at)].value)) for at in chosen)
    shots = [{"step": step, **_shot(value)} for step, value in values if value.size]
    cost = sum(len(tile) for shot in shots for tile in shot["tiles"])
    return {**_head(series, "picture"), "captures": len(series), "shots": shots, "cost": cost}


def _elements(series: Series) -> int:
    """The mean number of elements of a capture, at least 1."""
    return max(1, series.nbytes // (len(series) * bits_dtype(series.dtype).itemsize))


def _shot(value: NDArray[Any]) -> dict[str, Any]:
    """One capture, cut to the size limit: its shape, the positions that are shown on the last two axes, and the tiles as flat lists."""
    stack = value.reshape(-1, *value.shape[-3:])[0] if value.ndim > 2 else value[None]
    rows, columns = (evenly(size, MOST_CELLS) for size in stack.shape[1:])
    tiles = [plain(tile[np.ix_(rows, columns)].reshape(-1)) for tile in stack[:MOST_TILES]]
    return {"shape": list(value.shape), "rows": rows.tolist(), "columns": columns.tolist(), "tiles": tiles}


def _padded(value: NDArray[Any], places: NDArray[np.intp]) -> list[Any]:
    """The elements at some positions; null if a capture is shorter."""
    return [*plain(value[places[places < len(value)]]), *[None] * int((places >= len(value)).sum())]


def _real(value: NDArray[Any]) -> NDArray[Any]:
    """Real numbers; of complex ones the magnitude."""
    return np.abs(value) if np.iscomplexobj(value) else value
