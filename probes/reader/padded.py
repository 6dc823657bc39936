"""Captures of different sizes in one array."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.errors import RaggedSeries, UsageError
from probes.reader.selected import SelectedCaptures


def side_by_side(captures: SelectedCaptures) -> np.ma.MaskedArray[Any, Any]:
    """Captures, at least one, aligned at the first index of each axis; the rest is masked and zero.

    Raises:
        RaggedSeries: they differ in their number of axes.
    """
    if len({len(shape) for shape in captures.shapes}) > 1:
        shown = ", ".join(map(str, captures.shapes[:3]))
        raise RaggedSeries(f"the captures of `{captures.key}` differ in their number of axes: {shown}; iteration gives one after the other")
    shape = (len(captures), *map(max, zip(*captures.shapes, strict=True)))
    found = np.zeros(shape, captures[0].value.dtype)
    mask = np.ones(shape, bool)
    for index, capture in enumerate(captures):
        place: tuple[int | slice, ...] = (index, *(slice(size) for size in capture.value.shape))
        found[place] = capture.value
        mask[place] = False
    return np.ma.MaskedArray(found, mask)


def filled(captures: np.ma.MaskedArray[Any, Any], pad: complex) -> NDArray[Any]:
    """The array with a number in each masked place.

    Raises:
        UsageError: the dtype has no such number.
    """
    if not _has(captures.dtype, pad):
        raise UsageError(f"`pad={pad}` is not a number of the dtype `{captures.dtype}` of the captures; masked() needs none")
    array: NDArray[Any] = captures.filled(captures.dtype.type(pad))
    return array


def _has(dtype: np.dtype[Any], number: complex) -> bool:
    """Whether a dtype can represent a number: an integer exactly, a float rounded, but not to infinity."""
    if isinstance(number, complex):
        return dtype.kind == "c"
    if dtype.kind == "b":
        return number in (0, 1)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return number == number and number % 1 == 0 and int(limits.min) <= number <= int(limits.max)
    return (not isinstance(number, int) and not isfinite(number)) or abs(number) <= float(np.finfo(dtype).max)
