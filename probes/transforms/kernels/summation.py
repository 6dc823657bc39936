"""Sums, norms and standard deviations over axes, in float64.

Every number here errs by less than 2**-41 of the sum of magnitudes that it adds up (see `block_sum`), on the CPU and, in the same
blocks, on other devices; the number of threads does not matter. Columns whose squares or sums would leave the range of float64 are
scaled by a power of two first, so nothing overflows or underflows inside: a result is infinite if the true one is beyond
the range of the dtype that it is stored in, or an element is infinite. A NaN makes the result NaN, as infinities of both signs do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from probes.transforms.kernels.moments import BLOCK, SAFE, Doubles, block_sum

CHUNK = 1 << 17  # up to this size elements are converted to float64 once, not at each pass
KEPT = 1 << 20  # up to so many elements are converted to float64 once, not at each pass

Term = Callable[[Any], Any]
"""The term of each element in a sum: the same formula for numpy arrays and tensors."""


def same(values: Any) -> Any:
    """The element itself."""
    return values


def square(values: Any) -> Any:
    """Its square."""
    return values * values


def as_rows(tensor: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The tensor with the axes that are reduced joined to the first, and the others to the second."""
    kept = tuple(axis for axis in range(tensor.ndim) if axis not in axes)
    rows, columns = (prod(tensor.shape[axis] for axis in group) for group in (axes, kept))
    return tensor.permute((*axes, *kept)).reshape(rows, columns)


class Columns(Protocol):
    """The columns of a matrix that is reduced along its rows.

    Attributes:
        exponent: (columns,) sums are of the elements times 2**-exponent; None if that is 0.
        waits: whether a look at a number waits for a device.
    """

    exponent: Tensor | None
    waits: bool

    def sum(self, term: Term, shift: Tensor | None = None) -> Tensor:
        """The sums of a term of each scaled element, less a shift of its column; (columns,) float64 on the device."""


def columns_of(rows: Tensor) -> Columns:
    """The columns of a real matrix.

    Args:
        rows: (n, columns), any real dtype and device; not changed.
    """
    return _HostColumns(rows) if rows.device.type == "cpu" else DeviceColumns(rows)


def total(rows: Tensor, term: Term = same) -> Tensor:
    """The sum of a term of each element, which is the element or its magnitude."""
    columns = columns_of(rows)
    return device_scaled(columns.sum(term), columns.exponent)


def mean(rows: Tensor) -> Tensor:
    """The mean; NaN of no elements."""
    columns = columns_of(rows)
    return device_scaled(columns.sum(same) / rows.shape[0], columns.exponent)


def root_of_squares(rows: Tensor) -> Tensor:
    """The root of the sum of squares."""
    columns = columns_of(rows)
    return device_scaled(columns.sum(square).sqrt(), columns.exponent)


def standard_deviation(rows: Tensor) -> Tensor:
    """The population standard deviation; NaN of no elements.

    The shift is corrected once, so that what cancels in the last line is at most half of the squares; see `moments`.
    """
    columns, count = columns_of(rows), rows.shape[0]
    near = columns.sum(same) / count
    for attempt in range(2):
        off, squares = columns.sum(same, near) / count, columns.sum(square, near) / count
        if attempt or (not columns.waits and bool((off * off * 2 <= squares).all())):
            break
        near = near + off
    return device_scaled((squares - off * off).clamp(min=0).sqrt(), columns.exponent)


class _HostColumns:
    """Columns on the CPU, in chunks that fit the cache; numpy adds, whose order does not depend on threads."""

    waits: bool = False

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows.double() if rows.numel() <= KEPT else rows
        self.width = max(1, CHUNK // max(1, min(rows.shape[0], BLOCK)))
        small = rows.shape[1] <= self.width and rows.shape[0] <= max(1, CHUNK // (max(1, rows.shape[1]) * BLOCK)) * BLOCK
        self.whole: Doubles | None = self.rows.numpy() if small else None  # one chunk; without the loops this takes half of the time
        exponents = self._exponents() if rows.dtype is torch.float64 else None  # squares of all other dtypes are in range
        self.exponent = None if exponents is None or not exponents.any() else torch.from_numpy(exponents)

    def _exponents(self) -> Doubles:
        found = np.zeros(self.rows.shape[1])
        for part, chunks in self._parts():
            largest = np.max([_largest(chunk) for chunk in chunks], axis=0, initial=0.0)
            found[part] = _exponents(largest)
        return found

    def sum(self, term: Term, shift: Tensor | None = None) -> Tensor:
        """The sums of a term of each scaled element."""
        shifts = None if shift is None else shift.numpy()
        scales = None if self.exponent is None else -self.exponent.numpy().astype(np.int32)
        if self.whole is not None:
            with np.errstate(all="ignore"):
                return torch.from_numpy(block_sum(term(_prepared(self.whole, scales, shifts))))
        result = np.zeros(self.rows.shape[1])
        with np.errstate(all="ignore"):
            for part, chunks in self._parts():
                scale, centre = (None if known is None else known[part] for known in (scales, shifts))
                parts = [block_sum(term(_prepared(chunk, scale, centre))) for chunk in chunks]
                result[part] = parts[0] if len(parts) == 1 else block_sum(np.stack(parts)) if parts else 0.0
        return torch.from_numpy(result)

    def _parts(self) -> Iterator[tuple[slice, Iterator[Doubles]]]:
        """Slices of the columns, each with its chunks of rows as float64."""
        count, width = self.rows.shape
        for left in range(0, width, self.width):
            part = slice(left, min(left + self.width, width))
            height = max(1, CHUNK // ((part.stop - part.start) * BLOCK)) * BLOCK
            yield part, (self.rows[top : top + height, part].double().numpy() for top in range(0, count, height))


def _prepared(values: Doubles, scale: Any, shift: Any) -> Doubles:
    scaled = values if scale is None else np.ldexp(values, scale)
    return scaled if shift is None else np.subtract(scaled, shift)


def _largest(values: Doubles) -> Doubles:
    """The largest magnitude of the finite elements of each column."""
    return np.asarray(np.abs(values).max(axis=0, initial=0.0, where=np.isfinite(values)))


def _exponents(largest: Doubles) -> Doubles:
    safe = (largest == 0) | ((largest >= SAFE[0]) & (largest <= SAFE[1]))
    return np.where(safe, 0.0, np.frexp(largest)[1].astype(np.float64))


class DeviceColumns:
    """Columns in torch operations alone, without waiting for the device."""

    waits: bool = True

    def __init__(self, rows: Tensor) -> None:
        values = rows.double()
        exponent = device_exponent(values.where(values.isfinite(), 0.0))
        self.exponent: Tensor | None = exponent
        self.values = device_scaled(values, -exponent)

    def sum(self, term: Term, shift: Tensor | None = None) -> Tensor:
        """The sums of a term of each scaled element."""
        return device_sum(term(self.values if shift is None else self.values - shift))


def device_sum(values: Tensor) -> Tensor:
    """The sums along the first axis, in blocks as `block_sum` adds, by torch.

    Args:
        values: (n, columns) float64.
    """
    while values.shape[0] > BLOCK:
        padded = torch.nn.functional.pad(values, (0, 0, 0, -values.shape[0] % BLOCK))
        values = padded.view(-1, BLOCK, values.shape[1]).sum(1)
    return values.sum(0)


def device_exponent(finite: Tensor) -> Tensor:
    """The exponent of each column that keeps its squares in range; (columns,) float64.

    Args:
        finite: (n, columns) float64 without NaN and infinities.
    """
    if not finite.shape[0]:
        return finite.new_zeros(finite.shape[1])
    largest = finite.abs().amax(0)
    safe = (largest == 0) | ((largest >= SAFE[0]) & (largest <= SAFE[1]))
    return torch.frexp(largest).exponent.double().where(~safe, 0.0)


def device_scaled(values: Tensor, exponent: Tensor | None) -> Tensor:
    """`values * 2**exponent`, in two factors, since 2**1074 alone is out of range."""
    if exponent is None:
        return values
    half = (exponent / 2).floor()
    return values * torch.exp2(half) * torch.exp2(exponent - half)
