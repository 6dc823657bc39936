"""Count, mean, spread, extremes and special values of a tensor, in few readings of its memory.

On the CPU the work goes chunk by chunk, so that all readings but the first come from the cache. A chunk of float32 is summed
by `vecdot` in rows of `ROW` elements: too short for float32 to lose digits, and too short for a BLAS to split a row over
threads, so that the number of threads never shows in a result. Everything above rows is Python's float64. What float32
cannot do (NaN, infinities, overflow) and every dtype that is not a float of 16 or 32 bits is done in float64.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import reduce
from math import inf, isfinite, nan, sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

CHUNK = 1 << 17  # 512 KiB of float32: half of the second-level cache of what is around, and the calls cost little
ROW = 1024
SMALLEST = 1e-30  # below this mean square, squares of float32 lose digits to underflow
HALVES = (torch.float16, torch.bfloat16)

Singles = np.ndarray[tuple[int], np.dtype[np.float32]]
Doubles = np.ndarray[tuple[int], np.dtype[np.float64]]


class Part(NamedTuple):
    """What is known of a run of elements; parts add up.

    Attributes:
        elements: number of all elements.
        finite: number of finite ones; the next five are over these.
        mean: their mean, 0 where there are none.
        spread: sum of squared distances from the mean.
        squares: sum of squares.
        low: the smallest, +inf where there are none.
        high: the largest, -inf where there are none.
        zeros: number of zeros of either sign.
        nans: number of NaN.
        above: number of +inf.
        below: number of -inf.
    """

    elements: int = 0
    finite: int = 0
    mean: float = 0.0
    spread: float = 0.0
    squares: float = 0.0
    low: float = inf
    high: float = -inf
    zeros: int = 0
    nans: int = 0
    above: int = 0
    below: int = 0

    def joined(self, other: Part) -> Part:
        """Both runs together, after Chan, Golub and LeVeque."""
        finite = self.finite + other.finite
        share = other.finite / finite if finite else 0.0
        apart = other.mean - self.mean
        return Part(
            self.elements + other.elements,
            finite,
            self.mean + apart * share,
            self.spread + other.spread + apart * apart * share * self.finite,
            self.squares + other.squares,
            min(self.low, other.low),
            max(self.high, other.high),
            self.zeros + other.zeros,
            self.nans + other.nans,
            self.above + other.above,
            self.below + other.below,
        )

    def numbers(self) -> tuple[float, ...]:
        """The ten numbers of `stats`."""
        some = self.finite > 0
        return (
            float(self.elements),
            self.mean if some else nan,
            sqrt(self.spread / self.finite) if some else nan,
            self.low if some else nan,
            self.high if some else nan,
            sqrt(self.squares),
            float(self.zeros),
            float(self.nans),
            float(self.above),
            float(self.below),
        )


class _Scratch(threading.local):
    """Memory that every call on a thread writes over, so that hundreds of probes share one piece of it."""

    def __init__(self) -> None:
        self.tensor = torch.empty(CHUNK, dtype=torch.float32, device="cpu")
        self.values = self.tensor.numpy()
        self.apart = np.empty(CHUNK, np.float32)
        self.marks = np.empty(CHUNK, np.bool_)
        self.rows = np.empty(CHUNK // ROW, np.float32)


_scratch = _Scratch()
_ones = np.ones(ROW, np.float32)


def moments(tensor: Tensor) -> Tensor:
    """The ten numbers of `stats`.

    Args:
        tensor: any shape, any real dtype, any device; not changed.

    Returns:
        (10,) float64 on the same device.
    """
    if tensor.device.type != "cpu":
        return on_device(tensor)
    flat = tensor.reshape(-1).resolve_neg()
    if flat.data_ptr() == 0 and flat.numel():
        raise ValueError("the tensor has a shape but no memory (a fake tensor, or its storage was freed)")
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.array(_total(flat).numbers()))  # a third of the time of torch.tensor


def _total(flat: Tensor) -> Part:
    """All elements of a flat contiguous tensor on the CPU."""
    rows = flat.numel() // ROW * ROW if flat.dtype is torch.float32 or flat.dtype in HALVES else 0
    parts = [_narrow(values) for values in _singles(flat[:rows])] if rows else []
    parts += [_wide(flat[start : start + CHUNK].double().numpy()) for start in range(rows, flat.numel(), CHUNK)]
    return reduce(Part.joined, parts) if parts else Part()


def _singles(flat: Tensor) -> Iterator[Singles]:
    """The chunks of a tensor as float32: its own memory, or a copy that the next chunk overwrites."""
    if flat.dtype is torch.float32:
        values = flat.numpy()
        yield from (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))
        return
    for start in range(0, len(flat), CHUNK):
        chunk = flat[start : start + CHUNK]
        _scratch.tensor[: len(chunk)].copy_(chunk)
        yield _scratch.values[: len(chunk)]


def _narrow(values: Singles) -> Part:
    """Whole rows of float32, in float32 where that is exact enough."""
    count = len(values)
    low, high = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
    if low == high and isfinite(low):
        return Part(count, count, low, 0.0, count * low * low, low, high, 0 if low else count)
    total, squares = _sums(values)
    mean = total / count
    spread = squares - total * mean
    if isfinite(squares) and 2 * spread < squares:
        mean, spread = _about(values, mean)
        squares = spread + count * mean * mean
    if not SMALLEST * count < spread < inf:
        return _wide(values.astype(np.float64))
    return Part(count, count, mean, spread, squares, low, high, _zeros(values) if low <= 0 <= high else 0)


def _sums(values: Singles) -> tuple[float, float]:
    """Sum and sum of squares of whole rows of float32."""
    rows = values.reshape(-1, ROW)
    out = _scratch.rows[: len(rows)]
    total = float(np.add.reduce(np.vecdot(rows, _ones, out=out), dtype=np.float64))
    return total, float(np.add.reduce(np.vecdot(rows, rows, out=out), dtype=np.float64))


def _about(values: Singles, mean: float) -> tuple[float, float]:
    """Mean and sum of squared distances from it, from the distances to a number near the mean."""
    near = np.float32(mean)
    total, squares = _sums(np.subtract(values, near, out=_scratch.apart[: len(values)]))
    off = total / len(values)
    return float(near) + off, squares - total * off


def _zeros(values: Singles) -> int:
    marks = np.equal(values, 0, out=_scratch.marks[: len(values)])
    return int(np.count_nonzero(marks)) if marks.any() else 0


def _wide(values: Doubles) -> Part:
    """Any elements, as float64."""
    finite = np.isfinite(values)
    special = (0, 0, 0)
    clean = values
    if not finite.all():
        clean = values[finite]
        special = (_true(np.isnan(values)), _true(values == inf), _true(values == -inf))
    if not len(clean):
        return Part(len(values), 0, 0.0, 0.0, 0.0, inf, -inf, 0, *special)
    low, high, mean, spread = float(clean.min()), float(clean.max()), *_centred(clean)
    squares = float(np.add.reduce(clean * clean))
    return Part(len(values), len(clean), mean, spread, squares, low, high, _true(clean == 0), *special)


def _centred(values: Doubles) -> tuple[float, float]:
    """Mean and sum of squared distances from it, by two readings."""
    near = float(np.add.reduce(values)) / len(values)
    apart = values - near
    off = float(np.add.reduce(apart)) / len(values)
    return near + off, max(float(np.add.reduce(apart * apart)) - len(values) * off * off, 0.0)


def _true(marks: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    return int(np.count_nonzero(marks))


def on_device(tensor: Tensor) -> Tensor:
    """The ten numbers in torch operations alone, without waiting for the device.

    Args:
        tensor: any shape and real dtype on any device; not changed.

    Returns:
        (10,) float64 on the same device.
    """
    values = tensor.reshape(-1).double()
    finite = values.isfinite()
    count = finite.sum().double()
    clean = values.where(finite, 0.0)
    mean = clean.sum() / count
    apart = (clean - mean).where(finite, 0.0)
    some = count > 0
    edge = values.new_full((1,), inf)
    numbers = (
        values.new_full((), values.numel()),
        mean,
        (apart.square().sum() / count).sqrt(),
        torch.cat((values.where(finite, inf), edge)).amin().where(some, nan),
        torch.cat((values.where(finite, -inf), -edge)).amax().where(some, nan),
        clean.square().sum().sqrt(),
        (values == 0).sum().double(),
        values.isnan().sum().double(),
        (values == inf).sum().double(),
        (values == -inf).sum().double(),
    )
    return torch.stack(numbers)
