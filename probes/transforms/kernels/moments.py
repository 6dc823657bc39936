"""Count, mean, spread, extremes and special values of a set of numbers; those of two sets can be merged.

The merge is the pairwise form of Welford's update (B. P. Welford, Technometrics 4, 1962): T. F. Chan, G. H. Golub and R. J. LeVeque,
"Algorithms for computing the sample variance: analysis and recommendations", The American Statistician 37, 1983, equation 2.1.
This module does not import torch: the reader uses it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, ldexp, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

Doubles = np.ndarray[Any, np.dtype[np.float64]]

BLOCK = 1024
BOUND = 2.0**-41  # of the sum of magnitudes, for `block_sum`


class Moments(NamedTuple):
    """Numbers that describe a set of elements.

    Mean, spread and squares are of the elements times 2**-exponent, with an exponent that the caller chose.

    Attributes:
        elements: number of all elements.
        finite: number of finite elements; the next five describe these.
        mean: their mean, 0 if there are none.
        spread: sum of squared distances from the mean.
        squares: sum of squares.
        low: the smallest, +inf if there are none.
        high: the largest, -inf if there are none.
        zeros: number of zeros of either sign.
        nans: number of NaN.
        above: number of +inf.
        below: number of -inf.
        tail: what `mean` lacks of the mean, less than half a unit in its last place. Two runs of values that differ by a few such units
            would else seem to be as far apart as their means are rounded.
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
    tail: float = 0.0

    def joined(self, other: Moments) -> Moments:
        """The moments of both sets together."""
        finite = self.finite + other.finite
        share = other.finite / finite if finite else 0.0
        apart = (other.mean - self.mean) + (other.tail - self.tail)
        mean, tail = two_sum(self.mean, apart * share)
        mean, tail = two_sum(mean, tail + self.tail)
        return Moments(
            self.elements + other.elements,
            finite,
            mean,
            self.spread + other.spread + apart * apart * share * self.finite,
            self.squares + other.squares,
            min(self.low, other.low),
            max(self.high, other.high),
            self.zeros + other.zeros,
            self.nans + other.nans,
            self.above + other.above,
            self.below + other.below,
            tail,
        )

    def std(self, exponent: int = 0) -> float:
        """The population standard deviation of the finite elements; NaN if there are none."""
        return times_power_of_2(sqrt(self.spread / self.finite), exponent) if self.finite else nan


def two_sum(one: float, other: float) -> tuple[float, float]:
    """A sum as float64, and its exact rounding error, 0 if it is infinite (D. E. Knuth, Seminumerical Algorithms, 4.2.2, theorem B)."""
    total = one + other
    part = total - one
    rest = (one - (total - part)) + (other - part)
    return total, rest if isfinite(rest) else 0.0


def joined(parts: Sequence[Moments]) -> Moments:
    """The moments of several sets together, merged as a tree, so that rounding errors grow with its depth only."""
    while len(parts) > 1:
        pairs = [left.joined(right) for left, right in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, parts[-1]] if len(parts) % 2 else pairs
    return parts[0] if parts else Moments()


def of_doubles(values: Doubles, exponent: int = 0) -> Moments:
    """The moments of some elements.

    Args:
        values: (n,); not changed.
        exponent: mean, spread and squares are those of the elements times 2**-exponent.
    """
    with np.errstate(all="ignore"):
        finite = np.isfinite(values)
        special = (0, 0, 0)
        clean = values
        if not finite.all():
            clean = values[finite]
            special = (_true(np.isnan(values)), _true(values == inf), _true(values == -inf))
        if not len(clean):
            return Moments(len(values), nans=special[0], above=special[1], below=special[2])
        low, high, zeros = float(clean.min()), float(clean.max()), _true(clean == 0)
        scaled = np.ldexp(clean, -exponent) if exponent else clean
        mean, tail, spread = _centred(scaled)
        squares = float(block_sum(scaled * scaled))
        return Moments(len(values), len(clean), mean, spread, squares, low, high, zeros, *special, tail)


def _centred(values: Doubles) -> tuple[float, float, float]:
    """The mean, its rounding error, and the sum of squared distances from the mean.

    Distances are taken from a number near the mean, once more from a better one where it was not near enough. What cancels in
    the last line is then at most half of the squares: the nearest float64 to the mean is as far from it as half a unit in the last
    place, and values on that grid that are not all equal spread at least as far.
    """
    count = len(values)
    near = float(block_sum(values)) / count
    for attempt in range(3):
        apart = values - near
        off, squares = float(block_sum(apart)) / count, float(block_sum(apart * apart))
        if count * off * off * 2 <= squares or near + off == near or attempt == 2:
            break
        near += off
    return *two_sum(near, off), max(squares - count * off * off, 0.0)


def exponent_of(largest: float) -> int:
    """The exponent for scaling, so that no square or sum overflows or underflows; 0 if none would.

    Args:
        largest: the largest magnitude of the finite elements.
    """
    return 0 if largest == 0 or SAFE[0] <= largest <= SAFE[1] else int(np.frexp(largest)[1])


SAFE = (2.0**-400, 2.0**400)
"""Magnitudes whose squares, 2**40 of them, stay in range; next to an element of 2**-400, squares are lost only below 2**-1074."""


def times_power_of_2(number: float, exponent: int) -> float:
    """`number * 2**exponent`; infinite beyond the range of float64."""
    try:
        return ldexp(number, exponent)
    except OverflowError:
        return inf if number > 0 else -inf


def _true(marks: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    return int(np.count_nonzero(marks))


def block_sum(values: Doubles) -> Doubles:
    """The sums along the first axis, with an error bound that does not depend on the order of additions in the library.

    Adding m numbers in any order errs by at most (m - 1) u of the sum of their magnitudes, where u = 2**-53 (N. J. Higham, Accuracy
    and Stability of Numerical Algorithms, 2nd edition, 2002, section 4.2). Here at most 1024 numbers are added at a time, then the
    sums in the same way: 2 levels for 2**20 numbers, 4 for 2**40, so the error is at most 4 * 1023 u < 2**-41 of the magnitudes.

    Args:
        values: (n, ...); not changed.

    Returns:
        (...); zeros if n is 0.
    """
    while len(values) > BLOCK:
        whole = len(values) // BLOCK * BLOCK
        sums = np.add.reduce(values[:whole].reshape(-1, BLOCK, *values.shape[1:]), axis=1)
        rest = values[whole:]
        values = np.concatenate((sums, np.add.reduce(rest, axis=0)[None])) if len(rest) else sums
    return np.asarray(np.add.reduce(values, axis=0))
