"""Rows of captures as samples: which are kept by a mask, and what their ids are."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from probes.errors import RaggedSeries, SeriesNotFound

if TYPE_CHECKING:
    from probes.capture_file.series_part import StepIds
    from probes.reader.series import Piece, Series

CALL = ["epoch", "step", "microstep", "rank"]


def masked(series: Series, mask: Series) -> NDArray[Any]:
    """The places of a series where a mask of the same call is true.

    Args:
        series: captures of (*axes, ...).
        mask: captures of (*axes), one for each outermost call.

    Returns:
        (N, ...), owned by the caller.

    Raises:
        RaggedSeries: the mask has not exactly one capture for each call, or other sizes.
    """
    places = {row: index for index, row in enumerate(mask.clocks[CALL].tolist())}
    if len(places) != len(mask):
        raise RaggedSeries(f'"{mask.key}" has several captures in one call, so it is no mask')
    kept = []
    for call, capture in zip(series.clocks[CALL].tolist(), series, strict=True):
        if call not in places:
            raise RaggedSeries(f'the mask "{mask.key}" has no capture at {dict(zip(CALL, call, strict=True))}')
        where = mask[places[call]].value.astype(bool)
        if where.shape != capture.value.shape[: where.ndim]:
            raise RaggedSeries(f'the mask "{mask.key}" has the shape {where.shape} where "{series.key}" has {capture.value.shape}')
        kept.append(capture.value[where])
    return np.concatenate(kept) if kept else series.rows()


def ids(series: Series) -> NDArray[Any]:
    """The id of the sample behind each row of a series; see `Series.ids`."""
    return np.concatenate([_of_piece(series, piece) for piece in series.pieces] or [np.empty(0, np.int64)])


def _of_piece(series: Series, piece: Piece) -> NDArray[Any]:
    known = series.sample_ids(piece)
    if known is None:
        raise SeriesNotFound(f'"{piece.source.entry.name}" holds no sample ids; give them with run.steps(loader, ids=...)')
    steps = piece.clocks["step"]
    rows = piece.shapes[:, 0] if piece.shapes.shape[1] else np.ones(len(steps), np.int64)
    edges = np.flatnonzero(np.diff(steps, prepend=np.int64(-1), append=np.int64(-1)))
    return np.concatenate([_of_step(known, int(steps[first]), rows[first:last]) for first, last in pairwise(edges)])


def _of_step(known: StepIds, step: int, rows: NDArray[np.int64]) -> NDArray[Any]:
    """The ids of one step: shared out over its captures, or the same for each of them."""
    at = np.flatnonzero(known.steps == step)
    if len(at) != 1:
        raise SeriesNotFound(f"step {step} has no sample ids")
    start = int(known.sizes[: at[0]].sum())
    found = known.ids[start : start + int(known.sizes[at[0]])]
    if rows.sum() == len(found):
        return found
    if (rows == len(found)).all():
        return np.tile(found, len(rows))
    raise RaggedSeries(f"step {step} has {len(found)} samples and captures of {', '.join(map(str, rows))} rows")
