"""Thin out the captures of a line, and keep the visible extremes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def kept(steps: NDArray[np.int64], numbers: NDArray[np.generic], span: tuple[int, int], intervals: int) -> NDArray[np.intp]:
    """The captures of a line to keep: of each interval of steps the smallest, the largest and one that is not finite.

    Args:
        steps: (captures,) ascending.
        numbers: (captures,) any real dtype.
        span: first and last step of all lines, so that the intervals of all lines are the same.
        intervals: number of intervals of equal length.

    Returns:
        Positions, ascending; all of them if there are at most twice as many as intervals. The first and the last are among them.
    """
    count = len(steps)
    if count <= 2 * intervals:
        return np.arange(count)
    place = (steps - span[0]) * intervals // (span[1] - span[0] + 1)
    wide = numbers.astype(np.float64)
    finite = np.isfinite(wide)
    chosen = {0, count - 1}
    for some in (np.flatnonzero(finite), np.flatnonzero(~finite)):
        order = some[np.lexsort((wide[some], place[some]))]
        ends = np.flatnonzero(np.diff(place[order], prepend=-1, append=intervals))
        chosen.update(order[ends[:-1]].tolist() if len(order) else ())
        chosen.update(order[ends[1:] - 1].tolist() if len(order) else ())
    return np.array(sorted(chosen), np.intp)
