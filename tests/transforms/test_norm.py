from __future__ import annotations

from typing import Any

import pytest
import torch

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from tests.transforms.made import applied, made, same_bits


@pytest.mark.parametrize("keys", [{}, {"order": "l1"}, {"order": "l0", "dims": [0]}, {"order": "linf", "dims": [-1]}])
def test_the_transform_passes_the_conformance_kit(keys: dict[str, Any]) -> None:
    check_transform(made("norm", **keys))


@pytest.mark.parametrize(("order", "expected"), [("l0", 2.0), ("l1", 7.0), ("l2", 5.0), ("linf", 4.0)])
def test_the_order_chooses_the_norm(order: str, expected: float) -> None:
    assert applied(made("norm", order=order), torch.tensor([3.0, 0.0, -4.0])).item() == expected


def test_axes_are_reduced_by_name() -> None:
    value = torch.randn(2, 3, 4)
    result = applied(made("norm", dims=["feature"]), value, "batch", "token", "feature")
    assert same_bits(result, torch.linalg.vector_norm(value.double(), dim=2).float())


def test_the_norm_of_no_elements_is_zero() -> None:
    assert applied(made("norm", order="linf"), torch.zeros(2, 0)).item() == 0


def test_integers_are_refused_with_a_way_out() -> None:
    with pytest.raises(SignatureError, match=r"`int64` is not taken.*put a cast to float32 before it"):
        made("norm").out(Signature("int64"))


@pytest.mark.parametrize(
    ("order", "value", "expected"),
    [
        ("l2", torch.tensor([1e30, 1e30]), 1.4142135e30),
        ("l2", torch.full((3000,), 1e-25), 1e-25 * 3000**0.5),
        ("l2", torch.full((1_000_000,), 0.1), 100.0),
        ("l1", torch.full((2_000_000,), 0.1), 200_000.0),
        ("l1", torch.full((1000,), 100.0, dtype=torch.float16), 100_000.0),
        ("l0", torch.ones(1001, dtype=torch.bfloat16), 1001.0),
        ("l2", torch.tensor([3e200, 4e200], dtype=torch.float64), 5e200),
        ("l1", torch.tensor([3e200 + 4e200j], dtype=torch.complex128), 5e200),
        ("l2", torch.tensor([3e200 + 4e200j, 12e200], dtype=torch.complex128), 13e200),
        ("linf", torch.tensor([3 + 4j, -2], dtype=torch.complex64), 5.0),
    ],
    ids=str,
)
def test_sums_neither_lose_digits_nor_leave_the_range(order: str, value: torch.Tensor, expected: float) -> None:
    assert applied(made("norm", order=order), value).item() == pytest.approx(expected, rel=1e-7)
