"""Comparison of the bits of two captures, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import values
from probes.signature import DTYPES

PIECE = 1 << 13  # elements; the float64 copies of a piece stay in the cache and below what malloc maps again (3 to 9 times as fast)
EQUAL_PIECE = 1 << 18

Elements = NDArray[Any]


class ToleranceBounds(NamedTuple):
    """The allowed distance of two values: `|a - b| <= atol + rtol * |a|`; NaN equals NaN.

    Attributes:
        rtol: relative to the first value.
        atol: absolute.
    """

    rtol: float = 0.0
    atol: float = 0.0


@dataclass
class Measure:
    """The difference of two captures; numbers of a complex capture are counted one by one, real before imaginary.

    Attributes:
        beyond: how many numbers differ beyond the tolerance.
        first: flat position of the first of them, or None.
        max_abs: largest absolute difference; infinite if one side is not a number.
        max_rel: largest difference relative to the first side.
        max_ulp: largest distance in representable numbers; None for what is not a floating point number.
    """

    beyond: int = 0
    first: int | None = None
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: int | None = None
    dot: float = 0.0
    norm_a: float = 0.0
    norm_b: float = 0.0

    @property
    def cosine(self) -> float | None:
        """Cosine of the two captures; None if one is zero or not finite."""
        scale = float(np.sqrt(self.norm_a) * np.sqrt(self.norm_b))
        return min(max(self.dot / scale, -1.0), 1.0) if scale > 0 and np.isfinite(scale) and np.isfinite(self.dot) else None


def equal(a: Elements, b: Elements) -> bool:
    """Whether two captures of one dtype are bit-identical."""
    width = np.dtype(f"u{a.itemsize}")
    one, other = a.view(width), b.view(width)
    return all(np.array_equal(one[at : at + EQUAL_PIECE], other[at : at + EQUAL_PIECE]) for at in range(0, len(one), EQUAL_PIECE))


def measure(a: Elements, b: Elements, dtype: str, tolerance: ToleranceBounds | None) -> Measure:
    """Measure the difference of two captures.

    Args:
        a: (n,) exact bits of the first, as `Part.elements` gives them.
        b: (n,) exact bits of the second.
        dtype: torch's name, without prefix.
        tolerance: None to compare bit for bit.
    """
    found = Measure(max_ulp=0 if floating(dtype) else None)
    with np.errstate(all="ignore"):
        for start in range(0, len(a), PIECE):
            _add(found, start, a[start : start + PIECE], b[start : start + PIECE], dtype, tolerance)
    return found


def floating(dtype: str) -> bool:
    """Whether a dtype is a floating point or complex type."""
    return dtype.startswith(("float", "bfloat", "complex")) and dtype != "float4_e2m1fn_x2"


def _add(found: Measure, start: int, a: Elements, b: Elements, dtype: str, tolerance: ToleranceBounds | None) -> None:
    width = np.dtype(f"u{a.itemsize}")
    changed = a.view(width) != b.view(width)
    x, y = numbers(a, dtype), numbers(b, dtype)
    found.dot += float(x @ y)
    found.norm_a += float(x @ x)
    found.norm_b += float(y @ y)
    if not changed.any():
        return
    apart = np.where(changed & ~(np.isnan(x) & np.isnan(y)), _apart(a, b, x, y), 0.0)
    apart = np.where(np.isnan(apart), np.inf, apart)
    relative = np.where(apart > 0, apart / np.abs(x), 0.0)
    found.max_abs = max(found.max_abs, float(apart.max()))
    found.max_rel = max(found.max_rel, float(np.where(np.isnan(relative), np.inf, relative).max()))
    if found.max_ulp is not None:
        found.max_ulp = max(found.max_ulp, int(distance(a[changed], b[changed]).max()))
    beyond = changed if tolerance is None else apart > tolerance.atol + tolerance.rtol * np.where(np.isfinite(x), np.abs(x), 0.0)
    count = int(beyond.sum())
    if count and found.first is None:
        found.first = start + int(beyond.argmax())
    found.beyond += count


def _apart(a: Elements, b: Elements, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Absolute differences; for 64-bit integers computed as integers, because float64 has only 53 bits for them."""
    if a.dtype.kind not in "iu" or a.itemsize < 8:
        return np.abs(x - y)
    # The difference of the larger and the smaller one is below 2^64, so it is right modulo 2^64.
    return (np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64)).astype(np.float64)


def numbers(bits: Elements, dtype: str) -> NDArray[np.float64]:
    """The numbers in some bits, as float64; a complex number gives two."""
    if DTYPES[dtype].lanes > 1:
        return bits.astype(np.float64)
    return values(bits, dtype).astype(np.float64)


def distance(a: Elements, b: Elements) -> NDArray[np.uint64]:
    """The distance of floating point numbers in representable numbers, given their bits."""
    top = np.uint64(8 * a.itemsize - 1)
    one, other = (side.view(f"u{side.itemsize}").astype(np.uint64) for side in (a, b))
    mask = (np.uint64(1) << top) - np.uint64(1)
    low, high = np.minimum(one & mask, other & mask), np.maximum(one & mask, other & mask)
    apart: NDArray[np.uint64] = np.where(one >> top == other >> top, high - low, high + low)
    return apart


def shown(bits: Elements, at: int, dtype: str) -> tuple[str, str]:
    """The element with the number at a flat position: its value in the fewest exact digits, and its bits."""
    lanes = DTYPES[dtype].lanes
    start = at // lanes * lanes
    element = bits[start : start + lanes]
    value = values(element.reshape(1, lanes) if lanes > 1 else element, dtype)[0]
    code = "".join(f"{int(part):0{2 * element.itemsize}x}" for part in element.view(f"u{element.itemsize}"))
    return str(value), f"0x{code}"
