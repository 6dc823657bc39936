"""How exact the numbers of transforms are: computed on hard inputs, and compared with the bound that the docs of each transform state.

Every bound has half a unit in the last place of the stored dtype added, and its smallest subnormal number, for the final rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from probes.transforms.kernels.stats import on_device
from probes.transforms.project import directions
from tests.transforms.hard_inputs import Exact, ExactComplex, inputs, many, root, two
from tests.transforms.made import applied, compared, made

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
NARROW = ("float16", "bfloat16", "float32")
EXACT = Fraction(0)
ROUNDING = {
    "float16": (two(-11), two(-24)),
    "bfloat16": (two(-8), two(-133)),
    "float32": (two(-24), two(-149)),
    "float64": (two(-53), two(-1074)),
}

MERGED = ("stats", "norm", "reduce", "accumulate")

Formula = Callable[[Any], Fraction]


class Check(NamedTuple):
    """A number that was computed, and what it should be."""

    found: float
    true: Fraction
    bound: Fraction
    dtype: str = "float32"

    @property
    def share(self) -> Fraction:
        """The error as a share of the bound; 0 where both are beyond the range of the stored dtype."""
        if self.found in (inf, -inf):
            limit = Fraction(torch.finfo(getattr(torch, self.dtype)).max)
            return Fraction(0) if abs(self.true) + self.bound >= limit and (self.true > 0) == (self.found > 0) else two(99)
        error = abs(Fraction(self.found) - self.true)
        return error / self.bound if self.bound else (two(99) if error else Fraction(0))


Compute = Callable[[Tensor, Any], Check | None]


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

    def take(self, values: Tensor, exact: Exact | ExactComplex) -> None:
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
    return "float64" if _kind(values) in ("float64", "complex128") else "float32"


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


def _of_covariance(values: Tensor, exact: Exact) -> Check | None:
    """The covariance of the two halves of the input."""
    count = exact.count // 2
    if not count:
        return None
    pair = values[: 2 * count].view(2, count)
    one, other = Exact(pair[0]), Exact(pair[1])
    products = sum(a * b for a, b in zip(one.whole, other.whole, strict=True)) * one.unit * other.unit
    right = products / count - one.mean * other.mean
    bound = (count + 8) * two(-53) * one.std * other.std + two(-100) * one.magnitudes * other.magnitudes / count**2
    found = float(applied(made("accumulate", what="covariance", dims=[0]), pair.T)[3, 1])
    return Check(found, right, _stored("float64", right, bound), "float64")


def _of_quantile(values: Tensor, exact: Exact) -> Check | None:
    share = 0.3
    ordered, place = exact.sorted(), share * (exact.count - 1)
    below = int(place)
    low, high = ordered[below], ordered[min(below + 1, exact.count - 1)]
    right = low + (high - low) * Fraction(place - below)
    bound = max(abs(low), abs(high)) * two(-51)
    found = float(applied(made("quantile", q=[share]), values)[0])
    return Check(found, right, _stored(_widened(values), right, bound))


def _of_logits(values: Tensor, exact: Exact) -> Check | None:
    if exact.count > 300:  # exponentials to 60 digits take long
        return None
    with localcontext() as context:
        context.prec = 60
        logits = [Decimal(value) for value in values.double().tolist()]
        weights = [(logit - max(logits)).exp() for logit in logits]
        shares = [weight / sum(weights) for weight in weights]
        right = Fraction(sum(-share * share.ln() for share in shares if share > Decimal("1e-400")))
    bound = ((exact.count + 760) * two(-53) + two(-41)) * (right + 1)
    return Check(float(applied(made("entropy", of="logits"), values)), right, _stored(_widened(values), right, bound))


def _of_einops(reduction: str, true: Formula, terms: Formula) -> Compute:
    """A reduction by torch, which adds float16 and bfloat16 up in float32; where a partial result leaves the range, nothing is stated."""

    def compute(values: Tensor, exact: Exact) -> Check | None:
        kind = _kind(values)
        if reduction != "prod" and exact.magnitudes >= Fraction(torch.finfo(getattr(torch, kind)).max):
            return None
        found = applied(made("einops", pattern="n -> ()", reduction=reduction), values)
        right = true(exact)
        inner, smallest = ROUNDING[_widened(values)]
        return Check(float(found), right, _stored(kind, right, (terms(exact) * inner + smallest) * exact.count), kind)

    return compute


def _of_project(values: Tensor, exact: Exact) -> Check | None:
    size = 3
    unit, smallest = ROUNDING[_widened(values)]
    signs = directions(0, exact.count, size)[:, 0].tolist()
    right = sum(int(sign) * one for sign, one in zip(signs, exact.whole, strict=True)) * exact.unit / root(Fraction(size))
    bound = (exact.count + 3) * (unit * exact.magnitudes / root(Fraction(size)) + smallest)
    found = float(applied(made("project", size=size), values)[0])
    return Check(found, right, _stored(_widened(values), right, bound), _widened(values))


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
STD: Formula = lambda e: e.std  # noqa: E731  # a formula in one line
L2: Formula = lambda e: e.l2  # noqa: E731  # a formula in one line


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
    covariance = "(n + 8) 2^-53 of the product of std, and 2^-100 of that of the mean magnitudes"
    yield Row("accumulate", "covariance of n rows", FLOATS, covariance, _of_covariance)
    yield Row("quantile", "any", FLOATS, "2^-51 of the larger neighbor", _of_quantile)
    yield Row("entropy", "of probabilities", FLOATS, "2^-40 of the sum of magnitudes", _of_entropy)
    yield Row("entropy", "of n logits", FLOATS, "2^-41 and (n + 760) 2^-53 of itself and 1", _of_logits)


def _of_pair(kind: str, true: Callable[[Fraction, Fraction, Fraction], Fraction | None], relative: bool) -> Compute:
    """A comparison of the two halves of the input, from the exact sums of products."""

    def compute(values: Tensor, exact: Exact) -> Check | None:
        count = exact.count // 2
        pair = values[: 2 * count].view(2, count)
        one, other = Exact(pair[0]), Exact(pair[1])
        products = sum(a * b for a, b in zip(one.whole, other.whole, strict=True)) * one.unit * other.unit
        right = true(one.squares, other.squares, Fraction(products)) if count and one.squares and other.squares else None
        if right is None:
            return None
        found = float(compared(made(kind), pair[0], pair[1]))
        return Check(found, right, _stored(_widened(values), right, two(-39) * (right if relative else 1)), _widened(values))

    return compute


def _rows_of_pairs() -> Iterator[Row]:
    cosine = _of_pair("cosine", lambda one, other, both: both / root(one * other), relative=False)
    error = _of_pair("relative_error", lambda one, other, both: root((one + other - 2 * both) / other), relative=True)
    yield Row("cosine", "of two tensors", FLOATS, "2^-39", cosine)
    yield Row("relative_error", "of two tensors", FLOATS, "2^-39 of itself", error)


def _rows_of_torch() -> Iterator[Row]:
    """What torch computes, in float32, or in float64 for float64."""
    share = "of the {} of magnitudes"
    yield Row("einops", "sum of n", FLOATS, f"n u {share.format('sum')}", _of_einops("sum", lambda e: e.sum, lambda e: e.magnitudes))
    mean = _of_einops("mean", MEAN, lambda e: e.magnitudes / e.count)
    yield Row("einops", "mean of n", FLOATS, f"n u {share.format('mean')}", mean)
    yield Row("project", "of n", FLOATS, f"(n + 3) u {share.format('sum')} / sqrt(size)", _of_project)


def _complex_rows() -> Iterator[Row]:
    zeros: Formula = lambda e: Fraction(sum(map(bool, e.sizes)))  # noqa: E731  # a formula in one line
    table: dict[str, tuple[Formula, Formula, str]] = {
        "l0": (zeros, lambda e: EXACT, "0"),
        "l1": (
            lambda e: sum(e.sizes, EXACT),
            lambda e: two(-41) * sum(e.sizes, EXACT) + e.count * two(-1074),
            "2^-41 of itself, and n 2^-1074",
        ),
        "l2": (L2, lambda e: two(-41) * e.l2, "2^-41 of itself"),
        "linf": (lambda e: max(e.sizes), lambda e: two(-52) * max(e.sizes), "2^-52 of itself"),
    }
    for order, (true, bound, text) in table.items():
        yield Row("norm", f"{order} of complex elements", COMPLEX, text, _of(true, bound, "norm", order=order))
    yield Row("abs", "of a complex element", COMPLEX, "2 u of itself", _of_abs)


def _of_abs(values: Tensor, exact: ExactComplex) -> Check:
    dtype = _widened(values)
    unit, smallest = ROUNDING[dtype]
    found = applied(made("abs"), values).tolist()
    checks = [Check(one, size, 2 * unit * size + smallest, dtype) for one, size in zip(found, exact.sizes, strict=True)]
    return max(checks, key=lambda check: check.share)


def rows() -> list[Row]:
    """Every number with a bound, without figures."""
    return [*_stats_rows(), *_norm_rows(), *_complex_rows(), *_reduce_rows(), *_other_rows(), *_rows_of_pairs(), *_rows_of_torch()]


def measured(seed: int, repeats: int) -> list[Row]:
    """Every number with the worst errors over hard inputs.

    Args:
        seed: the same seed gives the same inputs.
        repeats: inputs of each pattern and dtype.
    """
    found = rows()
    for dtype in (*FLOATS, *COMPLEX):
        for values in inputs(dtype, seed, repeats):
            exact = ExactComplex(values) if values.is_complex() else Exact(values)
            for row in found:
                if dtype in row.dtypes:
                    row.take(values, exact)
    return found


def measured_of_many(seed: int, count: int) -> list[Row]:
    """The numbers that are sums of all elements, with the worst errors over inputs of so many elements."""
    found = [
        row
        for row in rows()
        if row.transform in MERGED and not row.number.startswith(("l0", "linf", "covariance")) and "float32" in row.dtypes
    ]
    for dtype in FLOATS:
        for values, exact in many(dtype, seed, count):
            for row in found:
                if dtype in row.dtypes:
                    row.take(values, exact)
    return [row for row in found if row.inputs]
