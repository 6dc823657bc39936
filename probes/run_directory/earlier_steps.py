"""The part of a series of an attempt that a later attempt continues: its captures before a training step."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.series_part import SeriesPart, StepColumn, StepIds, Variants


def ids_before(found: StepIds, before: int) -> StepIds:
    """The sample ids of the steps before one."""
    kept = found.steps < before
    return StepIds(found.steps[kept], found.sizes[kept], found.ids[np.repeat(kept, found.sizes)])


class EarlierSteps:
    """A `SeriesPart` without the captures from one step on; captures of earlier epochs stay.

    Args:
        part: the series.
        epoch: number of the epoch.
        before: the first step of the later attempt.
    """

    def __init__(self, part: SeriesPart, epoch: int, before: int) -> None:
        self._part = part
        self._positions = np.flatnonzero((part.clocks["epoch"] != epoch) | (part.clocks["step"] < before))
        self.key, self.dtype, self.dims, self.coords, self.attrs = part.key, part.dtype, part.dims, part.coords, part.attrs
        self.clocks = part.clocks[self._positions]
        self.steps = StepColumn(self.clocks)
        self.shapes = part.shapes[self._positions]
        self.shape = part.shape

    @property
    def orders(self) -> NDArray[np.uint32]:
        """(captures,) as in `SeriesPart.orders`."""
        return self._part.orders[self._positions]

    @cached_property
    def variants(self) -> Variants | None:
        """As in `SeriesPart.variants`."""
        found = self._part.variants
        return None if found is None else Variants(found.attrs, found.of[self._positions])

    def elements(self, first: int, last: int) -> NDArray[Any]:
        """The exact bits of the captures `first` to `last` (exclusive), flat."""
        wanted = self._positions[first:last]
        if not len(wanted):
            return self._part.elements(0, 0)
        ranges = np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1)
        return np.concatenate([self._part.elements(int(one[0]), int(one[-1]) + 1) for one in ranges])
