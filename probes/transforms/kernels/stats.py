"""The ten numbers of `stats`, in few readings of the tensor's memory.

On the CPU the work goes chunk by chunk, so that all readings but the first come from the cache. A chunk of float32 is summed
by `vecdot` in rows of `ROW` elements. A row is short, so that float32 keeps its digits and no BLAS splits it over threads: the number
of threads never shows in a result. Everything above rows is float64. What float32 cannot do (NaN, infinities, overflow) and every
dtype that is not a float of 16 or 32 bits is done in float64.

Bounds, with u = 2**-24 for the float32 path: a BLAS with vector instructions adds a row in 16 or more partial sums of 16 elements,
so a row errs by at most c = (16 + 4 + 1) u of its magnitudes. The spread of a chunk is at least half of the squares that it is taken
from, before or after centring, so it errs by 2 (1 + sqrt(2)) c of itself, and the mean by sqrt(2) c of the standard deviation.
Merging d levels of chunks adds sqrt(2 d) c to the spread, d <= 13 for 2**30 elements. So `mean` errs by less than 2**-19 of `std`,
`std` by 5 c < 2**-17 of itself, `l2` by 2 c < 2**-18 of itself. The float64 path errs by less than 2**-40 of the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from math import inf, isfinite, nan, sqrt

import numpy as np
import torch
from torch import Tensor

from probes.transforms.kernels.moments import Moments, exponent_of, joined, of_doubles, times_power_of_2
from probes.transforms.kernels.summation import device_exponent, device_scaled, device_sum

CHUNK = 1 << 17  # 512 KiB of float32: half of the second-level cache of common CPUs, with a low cost of calls
ROW = 256
SMALLEST = 1e-30  # below this mean square, squares of float32 lose digits to underflow
HALVES = (torch.float16, torch.bfloat16)

Singles = np.ndarray[tuple[int], np.dtype[np.float32]]


class _Scratch(threading.local):
    """Memory that every call on a thread overwrites, so that hundreds of probes share it."""

    def __init__(self) -> None:
        with torch.inference_mode(mode=False):  # a tensor of inference mode cannot be written to outside of it
            self.tensor = torch.empty(CHUNK, dtype=torch.float32, device="cpu")
        self.values = self.tensor.numpy()
        self.apart = np.empty(CHUNK, np.float32)
        self.marks = np.empty(CHUNK, np.bool_)
        self.rows = np.empty(CHUNK // ROW, np.float32)


_scratch = _Scratch()
_ones = np.ones(ROW, np.float32)


def stats(tensor: Tensor) -> Tensor:
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
    exponent = _exponent(flat) if flat.dtype is torch.float64 else 0
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.array(_numbers(_total(flat, exponent), exponent)))  # a third of the time of torch.tensor


def _numbers(found: Moments, exponent: int) -> tuple[float, ...]:
    some = found.finite > 0
    return (
        float(found.elements),
        times_power_of_2(found.mean, exponent) if some else nan,
        found.std(exponent),
        found.low if some else nan,
        found.high if some else nan,
        times_power_of_2(sqrt(found.squares), exponent),
        float(found.zeros),
        float(found.nans),
        float(found.above),
        float(found.below),
    )


def _exponent(flat: Tensor) -> int:
    """The exponent that keeps the squares of a float64 tensor in range."""
    values = flat.numpy()
    largest = max((_largest(values[start : start + CHUNK]) for start in range(0, len(values), CHUNK)), default=0.0)
    return exponent_of(largest)


def _largest(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """The largest magnitude of the finite elements."""
    magnitudes = np.abs(values)
    largest = float(magnitudes.max(initial=0.0))
    return largest if isfinite(largest) else float(magnitudes.max(initial=0.0, where=np.isfinite(values)))


def _total(flat: Tensor, exponent: int) -> Moments:
    """The moments of a flat contiguous tensor on the CPU."""
    rows = flat.numel() // ROW * ROW if flat.dtype is torch.float32 or flat.dtype in HALVES else 0
    parts = [_narrow(values) for values in _singles(flat[:rows])] if rows else []
    parts += [of_doubles(flat[start : start + CHUNK].double().numpy(), exponent) for start in range(rows, flat.numel(), CHUNK)]
    return joined(parts)


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


def _narrow(values: Singles) -> Moments:
    """The moments of whole rows of float32, in float32 where that is exact enough."""
    count = len(values)
    low, high = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
    if low == high and isfinite(low):
        return Moments(count, count, low, 0.0, count * low * low, low, high, 0 if low else count)
    total, squares = _sums(values)
    mean = total / count
    spread = squares - total * mean
    if isfinite(squares) and 2 * spread < squares:
        mean, spread = _about(values, mean)
        squares = spread + count * mean * mean
    if not SMALLEST * count < spread < inf:
        return of_doubles(values.astype(np.float64))
    return Moments(count, count, mean, spread, squares, low, high, _zeros(values) if low <= 0 <= high else 0)


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


def on_device(tensor: Tensor) -> Tensor:
    """The ten numbers in torch operations alone, in float64, without waiting for the device.

    Args:
        tensor: any shape and real dtype on any device; not changed.

    Returns:
        (10,) float64 on the same device.
    """
    values = tensor.reshape(-1, 1).double()
    finite = values.isfinite()
    count = finite.sum().double()
    clean = values.where(finite, 0.0)
    exponent = device_exponent(clean)
    scaled = device_scaled(clean, -exponent)
    near = device_sum(scaled) / count
    for _ in range(2):
        apart = (scaled - near).where(finite, 0.0)
        off, squares = device_sum(apart) / count, device_sum(apart.square()) / count
        near, centre = near + off, near
    some = count > 0
    edge = values.new_full((1,), inf)
    flat, marks = values.reshape(-1), finite.reshape(-1)
    numbers = (
        values.new_full((), values.numel()),
        device_scaled(centre + off, exponent).squeeze(),
        device_scaled((squares - off.square()).clamp(min=0).sqrt(), exponent).squeeze(),
        torch.cat((flat.where(marks, inf), edge)).amin().where(some, nan),
        torch.cat((flat.where(marks, -inf), -edge)).amax().where(some, nan),
        device_scaled(device_sum(scaled.square()).sqrt(), exponent).squeeze(),
        (flat == 0).sum().double(),
        flat.isnan().sum().double(),
        (flat == inf).sum().double(),
        (flat == -inf).sum().double(),
    )
    return torch.stack(numbers)
