"""A position-dependent sum over the elements of a tensor: the sums of its parts add up to that of the whole, for any sharding.

`schemas/weights.v1.md` defines it. A part of a tensor is summed without the other parts, so that no rank has to wait for another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from probes.digest import Hasher
from probes.run_directory.manifest import LANES, MODULUS

Places = NDArray[np.int64]
Numbers = NDArray[np.uint64]

_LIMB = 21  # bits; the sum of 65,536 products of a word of 16 bits and a limb stays below 2^53, so doubles are exact
_LIMBS = 3
_COLUMNS = 1 << 16
_SLAB = 1 << 20  # elements whose keys are in memory at a time
_WORDS = 1 << 17  # for one product: 1 MB of doubles stays in a cache
_WIDE = 256  # number of columns from which a matrix product is faster


def element_sum(dense: Tensor, places: Sequence[Places]) -> list[int]:
    """The sum of a part, one number for each lane.

    Args:
        dense: the part: contiguous, any dtype that has bytes, on any device, owned by the model.
        places: for each axis, where in the whole tensor the rows of the part are.
    """
    total = [0] * LANES
    for slab, where in _slabs(dense, places):
        total = [(one + more) % MODULUS for one, more in zip(total, _slab_sum(slab, where), strict=True)]
    return total


def _slabs(dense: Tensor, places: Sequence[Places]) -> Iterator[tuple[Tensor, list[Places]]]:
    """Slices along the first axis with more than one row, so that the keys need little memory; none for an empty part."""
    if not dense.numel():
        return
    axis = next((at for at, rows in enumerate(places) if len(rows) > 1), None)
    if axis is None:
        yield dense, list(places)
        return
    step = max(_SLAB * len(places[axis]) // dense.numel(), 1)
    for start in range(0, len(places[axis]), step):
        rows = places[axis][start : start + step]
        yield dense.narrow(axis, start, len(rows)), [*places[:axis], rows, *places[axis + 1 :]]


def _slab_sum(dense: Tensor, places: Sequence[Places]) -> list[int]:
    *outer, last = places or [np.zeros(1, np.int64)]
    words = _words(dense, len(last))
    each = words.shape[-1] // len(last)
    columns = _keys(len(outer), (last[:, None] * each + np.arange(each)).reshape(-1))
    tables = [_keys(axis, at) for axis, at in enumerate(outer)]
    while tables and len(columns) < _WIDE and len(columns) * len(tables[-1]) <= _COLUMNS:
        columns = _outer(tables.pop(), columns)
    rows = np.ones((1, LANES), np.uint64)
    for table in tables:
        rows = _outer(rows, table)
    found = _times(_products(words.reshape(len(rows), len(columns)), columns), rows)
    return [_added(found[:, lane]) for lane in range(LANES)]


def _words(dense: Tensor, last: int) -> Tensor:
    """The elements of each row as integers: bytes for dtypes of one byte, else signed words of two bytes, the lowest first."""
    rows = dense.reshape(-1, last)
    return rows.view(torch.uint8 if dense.element_size() == 1 else torch.int16)


def _keys(axis: int, places: Places) -> Numbers:
    """A row of keys for each place on an axis."""
    first, last = int(places[0]), int(places[-1])
    found = _stream(axis, first, last - first + 1)
    return found if len(found) == len(places) else found[places - first]


def _stream(axis: int, first: int, count: int) -> Numbers:
    content = _hasher(axis).digest(length=8 * LANES * count, seek=8 * LANES * first)
    return np.frombuffer(content, "<u8").reshape(count, LANES) >> np.uint64(3)


@cache
def _hasher(axis: int) -> Hasher:
    return Hasher(f"probes weights.v1 axis {axis}".encode())


def _outer(outer: Numbers, inner: Numbers) -> Numbers:
    """The products of two tables of keys, the inner axis fastest."""
    return _times(outer[:, None], inner[None]).reshape(-1, LANES)


def _products(matrix: Tensor, columns: Numbers) -> Numbers:
    """Each row times the keys of the columns, by lanes."""
    home = _home(matrix.device)
    found = np.zeros((len(matrix), LANES), np.uint64)
    for left in range(0, len(columns), _COLUMNS):
        keys = columns[left : left + _COLUMNS]
        factors = torch.from_numpy(_limbs(keys)).to(home)
        step = max(_WORDS // len(keys), 1)
        for top in range(0, len(matrix), step):
            piece = matrix[top : top + step, left : left + _COLUMNS].to(home)
            exact = (piece.double() @ factors).cpu().numpy().astype(np.int64)
            found[top : top + step] = _folded(found[top : top + step] + _joined(exact))
    return found


def _home(device: torch.device) -> torch.device:
    """The device for products: MPS has no doubles, and cuBLAS refuses products under deterministic algorithms."""
    there = device.type == "cuda" and not torch.are_deterministic_algorithms_enabled()
    return device if there else torch.device("cpu")


def _limbs(keys: Numbers) -> NDArray[np.float64]:
    """The keys in limbs of 21 bits, those of one limb side by side."""
    mask = np.uint64((1 << _LIMB) - 1)
    return np.concatenate([(keys >> np.uint64(_LIMB * at)) & mask for at in range(_LIMBS)], axis=1).astype(np.float64)


def _joined(exact: NDArray[np.int64]) -> Numbers:
    """The products with keys, from the products with their limbs, which may be negative."""
    parts = np.mod(exact, MODULUS).astype(np.uint64)
    found = parts[:, :LANES]
    for at in range(1, _LIMBS):
        found = found + _times(parts[:, LANES * at : LANES * (at + 1)], np.uint64(1 << (_LIMB * at)))
    return _folded(found)


def _times(a: Numbers, b: Numbers | np.uint64) -> Numbers:
    """Products in the field of 2^61-1, in which 2^61 is 1: 31 bits and the rest of each factor are multiplied separately.

    Factors and results are below 2^61 + 8; what is a whole modulus too large is the same number of the field.
    """
    low, shift = np.uint64((1 << 31) - 1), np.uint64(31)
    high_a, low_a, high_b, low_b = a >> shift, a & low, b >> shift, b & low
    middle = high_a * low_b + low_a * high_b
    wide = (middle & np.uint64((1 << 30) - 1)) << shift
    return _folded(_folded(low_a * low_b) + wide + np.uint64(2) * high_a * high_b + (middle >> np.uint64(30)))


def _folded(number: Numbers) -> Numbers:
    return (number & np.uint64(MODULUS)) + (number >> np.uint64(61))


def _added(column: Numbers) -> int:
    """The sum of many numbers by halves, because a sum of eight of them exceeds 64 bits."""
    low = int((column & np.uint64((1 << 32) - 1)).sum())
    return low + (int((column >> np.uint64(32)).sum()) << 32)


def whole_places(shape: Sequence[int]) -> list[Places]:
    """The places of a tensor that is not sharded."""
    return [np.arange(size) for size in shape]


def part_places(placements: Sequence[str], mesh: Sequence[int], coordinate: Sequence[int], shape: Sequence[int]) -> list[Places] | None:
    """The place of the part of one rank in the whole, by axis; None if a placement does not shard a tensor.

    A tensor is cut along the first dimension of the mesh first; a strided shard is cut last.

    Args:
        placements: one for each dimension of the mesh: `S(0)`, `S(0, 2)` (strided), `R` or `P(sum)`.
        mesh: sizes of the mesh.
        coordinate: of the rank in it.
        shape: of the whole.
    """
    found = whole_places(shape)
    for axis in sorted(range(len(placements)), key=lambda axis: "," in placements[axis]):
        name = placements[axis]
        if name == "R":
            continue
        if not name.startswith("S("):
            return None
        at = int(name[2:-1].partition(",")[0])
        size = -(-len(found[at]) // mesh[axis])
        found[at] = found[at][coordinate[axis] * size : (coordinate[axis] + 1) * size]
    return found
