"""The columns that every long table has: the names of a series, and the clock as signed numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NAMES = ("probe", "target", "leaf", "phase")
CLOCK = ("epoch", "step", "global_step", "microstep", "call", "backward", "rank")
UNKNOWN = np.uint64((1 << 64) - 1)


def whole(column: NDArray[Any]) -> NDArray[np.int64]:
    """A column of the clock as signed numbers; -1 for a step that is not known."""
    return np.where(column == UNKNOWN, -1, column.astype(np.int64)) if column.dtype == np.uint64 else column.astype(np.int64)
