"""Inputs on which naive sums go wrong, and exact arithmetic on them.

Elements become integers over a common power of two, so sums and sums of squares are exact; roots are taken to 200 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cached_property
from math import frexp, isqrt
from random import Random

import torch
from torch import Tensor

LENGTHS = (1, 2, 3, 7, 255, 256, 257, 600, 1024, 1025, 2500)
OF_A_TILE = 10_000  # elements, which exact arithmetic takes in a second


def two(power: int) -> Fraction:
    """A power of two."""
    return Fraction(2) ** power


class Exact:
    """Elements as exact numbers.

    Args:
        values: finite, one axis, any real dtype.
    """

    def __init__(self, values: Tensor) -> None:
        pairs = [frexp(value) for value in values.double().tolist()]
        self.exponent = min((power - 53 for part, power in pairs if part), default=0)
        self.whole = [int(part * 2**53) << (power - 53 - self.exponent) if part else 0 for part, power in pairs]
        self.unit = two(self.exponent)
        self.count = len(self.whole)

    @cached_property
    def sum(self) -> Fraction:
        return sum(self.whole) * self.unit

    @cached_property
    def magnitudes(self) -> Fraction:
        return sum(map(abs, self.whole)) * self.unit

    @cached_property
    def squares(self) -> Fraction:
        return sum(one * one for one in self.whole) * self.unit**2

    @cached_property
    def mean(self) -> Fraction:
        return self.sum / self.count

    @cached_property
    def variance(self) -> Fraction:
        return self.squares / self.count - self.mean**2

    @cached_property
    def std(self) -> Fraction:
        return root(self.variance)

    @cached_property
    def l2(self) -> Fraction:
        return root(self.squares)

    def sorted(self) -> list[Fraction]:
        return [one * self.unit for one in sorted(self.whole)]


class Tiled(Exact):
    """The elements of a short value, many times over.

    Args:
        values: as for `Exact`.
        times: how often they come; `whole` has them once.
    """

    def __init__(self, values: Tensor, times: int) -> None:
        super().__init__(values)
        self.times = times
        self.count *= times

    @cached_property
    def sum(self) -> Fraction:
        return super().sum * self.times

    @cached_property
    def magnitudes(self) -> Fraction:
        return super().magnitudes * self.times

    @cached_property
    def squares(self) -> Fraction:
        return super().squares * self.times


class ExactComplex:
    """Complex elements as exact numbers.

    Args:
        values: finite, one axis, any complex dtype.
    """

    def __init__(self, values: Tensor) -> None:
        self.parts = Exact(torch.view_as_real(values).reshape(-1))
        self.count = len(values)

    @cached_property
    def sizes(self) -> list[Fraction]:
        """The magnitude of each element."""
        whole = self.parts.whole
        return [root(Fraction(a * a + b * b)) * self.parts.unit for a, b in zip(whole[::2], whole[1::2], strict=True)]

    @cached_property
    def l2(self) -> Fraction:
        return self.parts.l2


def root(number: Fraction) -> Fraction:
    """The square root, to about 200 bits."""
    if not number:
        return number
    shift = max(0, 400 - number.numerator.bit_length() + number.denominator.bit_length())
    shift += shift % 2
    return Fraction(isqrt((number.numerator << shift) // number.denominator)) / two(shift // 2)


def inputs(dtype: str, seed: int, repeats: int) -> Iterator[Tensor]:
    """Hard inputs of a float or complex dtype: finite, one axis, the same for the same seed."""
    random = Random(f"{dtype} {seed}")
    wanted = getattr(torch, dtype)
    info = torch.finfo(wanted)
    for _ in range(repeats):
        for make in PATTERNS:
            length = random.choice(LENGTHS)
            parts = [torch.tensor(make(random, length, info), dtype=torch.float64) for _ in range(1 + wanted.is_complex)]
            real, *imaginary = (part.clamp(info.min, info.max) for part in parts)
            yield (torch.complex(real, *imaginary) if imaginary else real).to(wanted)


def many(dtype: str, seed: int, count: int) -> Iterator[tuple[Tensor, Tiled]]:
    """Inputs of so many elements, one for each pattern that does not come to nothing when it is repeated."""
    random = Random(f"{dtype} {seed} {count}")
    info = torch.finfo(getattr(torch, dtype))
    times = count // OF_A_TILE
    for make in (_normal, _far, _nearly_constant, _cancelling, _outlier, _drifting):
        tile = torch.tensor(make(random, OF_A_TILE, info), dtype=torch.float64).clamp(info.min, info.max).to(getattr(torch, dtype))
        yield tile.repeat(times), Tiled(tile, times)


Make = Callable[[Random, int, torch.finfo], list[float]]


def _normal(random: Random, length: int, info: torch.finfo) -> list[float]:
    return [random.gauss(0, 1) for _ in range(length)]


def _far(random: Random, length: int, info: torch.finfo) -> list[float]:
    middle = random.choice((1e2, 1e4, 1e8, 1e15))
    return [middle + random.gauss(0, 1) for _ in range(length)]


def _nearly_constant(random: Random, length: int, info: torch.finfo) -> list[float]:
    middle = random.uniform(0.5, 2)
    return [middle * (1 + info.eps * random.choice((0, 1))) for _ in range(length)]


def _constant(random: Random, length: int, info: torch.finfo) -> list[float]:
    return [random.choice((0.0, 0.1, 1 / 3, -7e4))] * length


def _cancelling(random: Random, length: int, info: torch.finfo) -> list[float]:
    large = [random.gauss(0, 1) * 2.0 ** random.randint(0, 14) for _ in range(length // 2)]
    mixed = [*large, *(-value for value in large), *([random.gauss(0, 1e-3)] * (length % 2))]
    random.shuffle(mixed)
    return mixed


def _outlier(random: Random, length: int, info: torch.finfo) -> list[float]:
    values = [random.gauss(0, 1) * info.smallest_normal * 1e3 for _ in range(length)]
    values[random.randrange(length)] = info.max * random.uniform(0.1, 1)
    return values


def _subnormal(random: Random, length: int, info: torch.finfo) -> list[float]:
    smallest = info.smallest_normal * info.eps
    return [smallest * random.randint(-9, 9) for _ in range(length)]


def _largest(random: Random, length: int, info: torch.finfo) -> list[float]:
    return [random.choice((-1, 1)) * info.max * random.uniform(0.5, 1) for _ in range(length)]


def _tiny(random: Random, length: int, info: torch.finfo) -> list[float]:
    return [random.gauss(0, 1) * info.smallest_normal * 4 for _ in range(length)]


def _repeated(random: Random, length: int, info: torch.finfo) -> list[float]:
    few = [random.choice((0.0, 30517.0, 1e-3, random.uniform(-1e4, 1e4))) for _ in range(random.randint(2, 5))]
    return [few[index % len(few)] for index in range(length)]


def _log_uniform(random: Random, length: int, info: torch.finfo) -> list[float]:
    low, high = frexp(info.smallest_normal)[1], frexp(info.max)[1] - 1
    return [random.choice((-1, 1)) * random.uniform(0.5, 1) * 2.0 ** random.randint(low, high) for _ in range(length)]


def _drifting(random: Random, length: int, info: torch.finfo) -> list[float]:
    return [index / length * 1e3 + random.gauss(0, 1e-2) for index in range(length)]


PATTERNS: tuple[Make, ...] = (
    _normal,
    _far,
    _nearly_constant,
    _constant,
    _cancelling,
    _outlier,
    _subnormal,
    _largest,
    _tiny,
    _repeated,
    _log_uniform,
    _drifting,
)
