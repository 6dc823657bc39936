"""Rows of captures as samples: the rows that a mask keeps, and the id of each sample."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.series_part import StepIds
from probes.errors import RaggedSeries, SeriesNotFound
from probes.reader.lazy_part import LazyPart
from probes.reader.selected import SelectedCaptures, rows_of

CALL = ["epoch", "step", "microstep", "rank"]


def masked(captures: SelectedCaptures, mask: SelectedCaptures) -> NDArray[Any]:
    """The places of captures where a mask of the same call is true.

    Args:
        captures: of (*axes, ...); there has to be one.
        mask: captures of (*axes), one for each outermost call.

    Returns:
        (N, ...), owned by the caller.

    Raises:
        RaggedSeries: the mask has not exactly one capture for each call, or other sizes.
    """
    places = {row: index for index, row in enumerate(mask.clocks[CALL].tolist())}
    if len(places) != len(mask):
        raise RaggedSeries(f"`{mask.key}` has several captures in one call, so it cannot be a mask")
    kept = []
    for call, capture in zip(captures.clocks[CALL].tolist(), captures, strict=True):
        if call not in places:
            raise RaggedSeries(f"the mask `{mask.key}` has no capture at {dict(zip(CALL, call, strict=True))}")
        where = mask[places[call]].value.astype(bool)
        if where.shape != capture.value.shape[: where.ndim]:
            raise RaggedSeries(f"the mask `{mask.key}` has the shape {where.shape} where `{captures.key}` has {capture.value.shape}")
        kept.append(capture.value[where])
    return np.concatenate(kept)


def ids(captures: SelectedCaptures) -> NDArray[Any]:
    """The id of the sample of each row of the captures; see `Series.ids`."""
    return np.concatenate([_of_part(*chosen) for chosen in captures.chosen] or [np.empty(0, np.int64)])


def among(found: NDArray[Any], wanted: Collection[int | str]) -> NDArray[np.bool_]:
    """The ids that are selected; numbers and texts are never equal."""
    return np.array([one in wanted for one in found.tolist()], bool)


def holding(part: LazyPart, positions: NDArray[np.intp], wanted: Collection[int | str]) -> NDArray[np.bool_]:
    """The captures of a part whose step saw one of the samples; no value is read."""
    recorded = _recorded(part)
    steps = np.repeat(recorded.steps, recorded.sizes)[among(recorded.ids, wanted)]
    return np.isin(part.clocks["step"][positions], steps)


def by_step(part: LazyPart) -> dict[int, list[int | str]]:
    """The sample ids of each step of the file of a part; empty if it has none."""
    recorded = part.sample_ids()
    if recorded is None:
        return {}
    groups = np.split(recorded.ids, np.cumsum(recorded.sizes)[:-1])
    return {step: group.tolist() for step, group in zip(recorded.steps.tolist(), groups, strict=True)}


def _recorded(part: LazyPart) -> StepIds:
    recorded = part.sample_ids()
    if recorded is None:
        raise SeriesNotFound(f'"{part.entry.name}" holds no sample ids; record them with run.steps(loader, ids=...)')
    return recorded


def _of_part(part: LazyPart, positions: NDArray[np.intp]) -> NDArray[Any]:
    recorded = _recorded(part)
    steps, rows = part.part().clocks["step"][positions], rows_of(part, positions)
    edges = np.flatnonzero(np.diff(steps, prepend=np.int64(-1), append=np.int64(-1)))
    return np.concatenate([_of_step(recorded, int(steps[first]), rows[first:last]) for first, last in pairwise(edges)])


def _of_step(recorded: StepIds, step: int, rows: NDArray[np.int64]) -> NDArray[Any]:
    """The ids of one step: divided among its captures, or the same for each of them."""
    at = np.flatnonzero(recorded.steps == step)
    if len(at) != 1:
        raise SeriesNotFound(f"step {step} has no sample ids")
    start = int(recorded.sizes[: at[0]].sum())
    found = recorded.ids[start : start + int(recorded.sizes[at[0]])]
    if rows.sum() == len(found):
        return found
    if (rows == len(found)).all():
        return np.tile(found, len(rows))
    raise RaggedSeries(f"step {step} has {len(found)} samples and captures of {', '.join(map(str, rows))} rows")
