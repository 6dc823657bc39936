"""How exact the numbers of transforms are: computed on hard inputs, and compared with the bound that the docs of each transform state.

Every bound has half a unit in the last place of the stored dtype added, and its smallest subnormal number, for the final rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from probes.transforms.kernels.stats import on_device
from tests.transforms.hard_inputs import Exact, inputs, two
from tests.transforms.made import applied, made

FLOATS = ("float16", "bfloat16", "float32", "float64")
NARROW = ("float16", "bfloat16", "float32")
EXACT = Fraction(0)
ROUNDING = {"float32": (two(-24), two(-149)), "float64": (two(-53), two(-1074))}

Formula = Callable[[Exact], Fraction]


class Check(NamedTuple):
    """A number that was computed, and what it should be."""

    found: float
    true: Fraction
    bound: Fraction

    @property
    def share(self) -> Fraction:
        """The error as a share of the bound; 0 where both are beyond the range of the stored dtype."""
        if self.found in (inf, -inf):
            limit = Fraction(torch.finfo(torch.float32).max)
            return Fraction(0) if abs(self.true) * (1 + two(-24)) >= limit and (self.true > 0) == (self.found > 0) else two(99)
        error = abs(Fraction(self.found) - self.true)
        return error / self.bound if self.bound else (two(99) if error else Fraction(0))


Compute = Callable[[Tensor, Exact], Check | None]


@dataclass
class Row:
    """A number of a transform: its stated bound, and the worst error found.

    Attributes:
        transform: the kind.
        number: which of its numbers.
        dtypes: dtypes of the value.
        bound: what the docs state, without the final rounding.
        compute: the number of some values, with the bound; None where the input is not for it.
    """

    transform: str
    number: str
    dtypes: tuple[str, ...]
    bound: str
    compute: Compute
    inputs: int = 0
    share: Fraction = EXACT

    def take(self, values: Tensor, exact: Exact) -> None:
        """Count an input and keep the worst."""
        check = self.compute(values, exact)
        if check is None:
            return
        self.inputs += 1
        self.share = max(self.share, check.share)


def _stored(dtype: str, true: Fraction, bound: Fraction) -> Fraction:
    """A bound with that of the last rounding to a dtype."""
    relative, absolute = ROUNDING[dtype]
    return bound + (abs(true) + bound) * relative + absolute


def _kind(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def _widened(values: Tensor) -> str:
    return "float64" if _kind(values) == "float64" else "float32"


def _of_stats(
    index: int, true: Callable[[Exact], Fraction], bound: Callable[[Exact], Fraction], large: bool, device: bool = False
) -> Callable[[Tensor, Exact], Check | None]:
    def compute(values: Tensor, exact: Exact) -> Check | None:
        if not device and (len(values) >= 256 and _kind(values) in NARROW) != large:
            return None
        numbers = on_device(values) if device else applied(made("stats"), values)
        right = true(exact)
        return Check(float(numbers[index]), right, _stored("float64", right, bound(exact)))

    return compute


def _of(
    true: Callable[[Exact], Fraction], bound: Callable[[Exact], Fraction], kind: str, **keys: str
) -> Callable[[Tensor, Exact], Check | None]:
    def compute(values: Tensor, exact: Exact) -> Check | None:
        found = applied(made(kind, **keys), values)
        assert _kind(found) == _widened(values)
        right = true(exact)
        return Check(float(found), right, _stored(_widened(values), right, bound(exact)))

    return compute


def _of_accumulate(
    index: int, true: Callable[[Exact], Fraction], bound: Callable[[Exact], Fraction]
) -> Callable[[Tensor, Exact], Check | None]:
    def compute(values: Tensor, exact: Exact) -> Check | None:
        right = true(exact)
        return Check(float(applied(made("accumulate"), values)[index]), right, _stored("float64", right, bound(exact)))

    return compute


def _of_quantile(values: Tensor, exact: Exact) -> Check | None:
    share = 0.3
    ordered, place = exact.sorted(), share * (exact.count - 1)
    below = int(place)
    low, high = ordered[below], ordered[min(below + 1, exact.count - 1)]
    right = low + (high - low) * Fraction(place - below)
    bound = max(abs(low), abs(high)) * two(-51)
    found = float(applied(made("quantile", q=[share]), values)[0])
    return Check(found, right, _stored(_widened(values), right, bound))


def _of_entropy(values: Tensor, _exact: Exact) -> Check | None:
    shares = values.double().abs()
    if not 0 < float(shares.max()) < 1e300:
        return None
    shares = (shares / shares.sum()).to(values.dtype)
    with localcontext() as context:
        context.prec = 60
        parts = [Fraction(-Decimal(share) * Decimal(share).ln()) for share in shares.double().tolist() if share]
    found = float(applied(made("entropy"), shares))
    return Check(found, sum(parts, EXACT), _stored(_widened(values), sum(parts, EXACT), sum(map(abs, parts), EXACT) * two(-40)))


MEAN: Formula = lambda e: e.mean  # noqa: E731  # formulas are values here, in tables
STD: Formula = lambda e: e.std  # noqa: E731
L2: Formula = lambda e: e.l2  # noqa: E731


def _stats_bounds(std: int, l2: int, mean: int) -> dict[str, tuple[int, Formula, Formula, str]]:
    """The place, truth and bound of each inexact number of `stats`, by powers of two."""
    return {
        "mean": (1, MEAN, lambda e: two(mean) * e.std + two(-52) * abs(e.mean), f"2^{mean} of std, and 2^-52 of itself"),
        "std": (2, STD, lambda e: two(std) * e.std, f"2^{std} of itself"),
        "l2": (5, L2, lambda e: two(l2) * e.l2, f"2^{l2} of itself"),
    }


def _stats_rows() -> Iterator[Row]:
    for name, (at, true, bound, text) in _stats_bounds(-17, -18, -18).items():
        yield Row("stats", f"{name}, 256 elements or more", NARROW, text, _of_stats(at, true, bound, large=True))
    for name, (at, true, bound, text) in _stats_bounds(-40, -40, -40).items():
        yield Row("stats", f"{name}, float64 or fewer elements", FLOATS, text, _of_stats(at, true, bound, large=False))
        yield Row("stats", f"{name}, on other devices", FLOATS, text, _of_stats(at, true, bound, large=False, device=True))


def _norm_rows() -> Iterator[Row]:
    yield Row("norm", "l0", FLOATS, "0", _of(lambda e: Fraction(sum(map(bool, e.whole))), lambda e: EXACT, "norm", order="l0"))
    yield Row("norm", "l1", FLOATS, "2^-41 of itself", _of(lambda e: e.magnitudes, lambda e: two(-41) * e.magnitudes, "norm", order="l1"))
    yield Row("norm", "l2", FLOATS, "2^-41 of itself", _of(L2, lambda e: two(-41) * e.l2, "norm", order="l2"))
    yield Row("norm", "linf", FLOATS, "0", _of(lambda e: max(map(abs, e.whole)) * e.unit, lambda e: EXACT, "norm", order="linf"))


def _reduce_rows() -> Iterator[Row]:
    table: dict[str, tuple[Formula, Formula, str]] = {
        "sum": (lambda e: e.sum, lambda e: two(-41) * e.magnitudes, "2^-41 of the sum of magnitudes"),
        "mean": (MEAN, lambda e: two(-41) * e.magnitudes / e.count, "2^-41 of the mean of magnitudes"),
        "std": (STD, lambda e: two(-41) * e.std, "2^-41 of itself"),
        "norm": (L2, lambda e: two(-41) * e.l2, "2^-41 of itself"),
    }
    for op, (true, bound, text) in table.items():
        yield Row("reduce", op, FLOATS, text, _of(true, bound, "reduce", op=op))


def _other_rows() -> Iterator[Row]:
    _, true, bound, text = _stats_bounds(-40, -40, -40)["mean"]
    yield Row("accumulate", "mean of one value", FLOATS, text, _of_accumulate(2, true, bound))
    variance = _of_accumulate(3, lambda e: e.variance, lambda e: two(-39) * e.variance)
    yield Row("accumulate", "variance of one value", FLOATS, "2^-39 of itself", variance)
    yield Row("quantile", "any", FLOATS, "2^-51 of the larger neighbor", _of_quantile)
    yield Row("entropy", "of probabilities", FLOATS, "2^-40 of the sum of magnitudes", _of_entropy)


def rows() -> list[Row]:
    """Every number with a bound, without figures."""
    return [*_stats_rows(), *_norm_rows(), *_reduce_rows(), *_other_rows()]


def measured(seed: int, repeats: int) -> list[Row]:
    """Every number with the worst errors over hard inputs.

    Args:
        seed: the same seed gives the same inputs.
        repeats: inputs of each pattern and dtype.
    """
    found = rows()
    for dtype in FLOATS:
        for values in inputs(dtype, seed, repeats):
            exact = Exact(values)
            for row in found:
                if dtype in row.dtypes:
                    row.take(values, exact)
    return found
