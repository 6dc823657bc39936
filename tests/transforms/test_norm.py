from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
import torch

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from tests.rounding import U32, U64, within
from tests.transforms.hard_inputs import root
from tests.transforms.made import applied, made


@pytest.mark.parametrize("keys", [{}, {"order": "l1"}, {"order": "l0", "dims": [0]}, {"order": "linf", "dims": [-1]}])
def test_the_transform_passes_the_conformance_kit(keys: dict[str, Any]) -> None:
    check_transform(made("norm", **keys))


@pytest.mark.parametrize(("order", "expected"), [("l0", 2.0), ("l1", 7.0), ("l2", 5.0), ("linf", 4.0)])
def test_the_order_chooses_the_norm(order: str, expected: float) -> None:
    assert applied(made("norm", order=order), torch.tensor([3.0, 0.0, -4.0])).item() == expected


def test_axes_are_reduced_by_name() -> None:
    value = torch.randn(2, 3, 4)
    result = applied(made("norm", dims=["feature"]), value, "batch", "token", "feature")
    exact = torch.linalg.vector_norm(value.double(), dim=2)
    assert within(result, exact, (U32 + 2**-40) * exact)


def test_the_norm_of_no_elements_is_zero() -> None:
    assert applied(made("norm", order="linf"), torch.zeros(2, 0)).item() == 0


def test_integers_are_refused_with_advice() -> None:
    with pytest.raises(SignatureError, match=r"`int64` is not taken.*put a cast to float32 before it"):
        made("norm").out(Signature("int64"))


@pytest.mark.parametrize(
    ("order", "value"),
    [
        ("l2", torch.tensor([1e30, 1e30])),
        ("l2", torch.full((3000,), 1e-25)),
        ("l2", torch.full((1_000_000,), 0.1)),
        ("l1", torch.full((2_000_000,), 0.1)),
        ("l1", torch.full((1000,), 100.0, dtype=torch.float16)),
        ("l0", torch.ones(1001, dtype=torch.bfloat16)),
        ("l2", torch.tensor([3e200, 4e200], dtype=torch.float64)),
        ("l1", torch.tensor([3e200 + 4e200j], dtype=torch.complex128)),
        ("l2", torch.tensor([3e200 + 4e200j, 12e200], dtype=torch.complex128)),
        ("linf", torch.tensor([3 + 4j, -2], dtype=torch.complex64)),
    ],
    ids=str,
)
def test_sums_do_not_lose_digits_and_stay_in_range(order: str, value: torch.Tensor) -> None:
    true = exact(order, value)
    bound = true * Fraction(2.0**-41 + (U64 if value.dtype.itemsize > 8 or value.dtype is torch.float64 else U32) * 2)
    assert abs(Fraction(applied(made("norm", order=order), value).item()) - true) <= bound


def exact(order: str, value: torch.Tensor) -> Fraction:
    """The norm in exact arithmetic; roots to 200 bits."""
    counts = Counter(value.flatten().tolist())
    squares = {one: Fraction(complex(one).real) ** 2 + Fraction(complex(one).imag) ** 2 for one in counts}
    if order == "l2":
        return root(sum((count * squares[one] for one, count in counts.items()), Fraction(0)))
    sizes = {one: root(square) for one, square in squares.items()}
    if order == "linf":
        return max(sizes.values())
    return sum((Fraction(count * (sizes[one] != 0)) if order == "l0" else count * sizes[one] for one, count in counts.items()), Fraction(0))
