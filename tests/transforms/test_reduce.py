from __future__ import annotations

from fractions import Fraction
from typing import Any, get_args

import pytest
import torch

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from probes.transforms.reduce import Op
from tests.rounding import U32, U64
from tests.transforms.hard_inputs import Exact, two
from tests.transforms.made import applied, made, same_bits


@pytest.mark.parametrize("op", get_args(Op))
@pytest.mark.parametrize("dims", [None, [-1], pytest.param([0, 1], marks=pytest.mark.torture)])
def test_every_operation_passes_the_conformance_kit(op: str, dims: list[int] | None) -> None:
    check_transform(made("reduce", op=op, **({} if dims is None else {"dims": dims})))


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        ("mean", lambda v: v.mean((1, 2))),
        ("sum", lambda v: v.sum((1, 2))),
        ("max", lambda v: v.amax((1, 2))),
        ("min", lambda v: v.amin((1, 2))),
        ("std", lambda v: v.std((1, 2), correction=0)),
        ("norm", lambda v: v.flatten(1).norm(dim=1)),
        ("any", lambda v: (v != 0).any(2).any(1)),
        ("all", lambda v: (v != 0).all(2).all(1)),
    ],
)
def test_the_numbers_are_torchs(op: str, formula: Any) -> None:
    value = torch.randn(3, 4, 5)
    value[0] = 0
    value[1, 1, 1] = 0
    rounded = value.abs().double().sum((1, 2)) * 20 * torch.finfo(torch.float32).eps  # 20 roundings
    ours = applied(made("reduce", op=op, dims=["y", -1]), value, "batch", "y", "x")
    assert ((ours.double() - formula(value).double()).abs() <= rounded).all()


def test_without_dims_one_number_is_left() -> None:
    value = torch.randn(3, 4)
    assert same_bits(applied(made("reduce", op="max"), value), value.max())
    assert same_bits(applied(made("reduce", op="max"), torch.tensor(2.0)), torch.tensor(2.0))


@pytest.mark.parametrize("op", ["max", "min", "std", "mean"])
def test_zero_elements_give_nan(op: str) -> None:
    result = applied(made("reduce", op=op, dims=[1]), torch.zeros(2, 0))
    assert result.shape == (2,)
    assert result.isnan().all()


def test_the_largest_of_no_integers_is_refused() -> None:
    with pytest.raises(SignatureError, match="`max` of zero elements does not exist"):
        made("reduce", op="max").out(Signature("int64", (0,)))
    work = made("reduce", op="max").begin(Signature("int64", (3,)))
    with pytest.raises(SignatureError, match="of zero elements does not exist"):
        work(torch.zeros(0, dtype=torch.int64))


@pytest.mark.parametrize(
    ("keys", "signature", "message"),
    [
        ({"op": "mean"}, Signature("int64", (3,)), "`int64` is not taken.*put a cast to float32 before it"),
        ({"op": "sum"}, Signature("float8_e5m2", (3,)), "`float8_e5m2` is not taken"),
        ({"op": "sum", "dims": ["x"]}, Signature("float32", (3,)), "give the probe `dims`"),
        ({"op": "sum", "dims": [0, -2]}, Signature("float32", (3, 3)), "one axis twice"),
    ],
)
def test_settings_that_do_not_fit_the_value_are_refused(keys: dict[str, Any], signature: Signature, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        made("reduce", **keys).out(signature)


@pytest.mark.parametrize(
    ("op", "value"),
    [
        ("sum", torch.full((1000,), 100.0, dtype=torch.float16)),
        ("sum", torch.tensor([1e30, 1.0, -1e30])),
        ("norm", torch.tensor([1e30, 1e30])),
        ("std", torch.tensor([1e25, -1e25])),
        ("std", torch.tensor([1e200, -1e200], dtype=torch.float64)),
        ("mean", torch.full((10,), 1.7e308, dtype=torch.float64)),
        ("mean", torch.full((1000,), 60_000.0, dtype=torch.float16)),
    ],
    ids=str,
)
def test_sums_do_not_lose_digits_and_stay_in_range(op: str, value: torch.Tensor) -> None:
    true = Exact(value)
    expected = {"sum": true.sum, "norm": true.l2, "std": true.std, "mean": true.mean}[op]
    terms = {"sum": true.magnitudes, "norm": true.l2, "std": true.std, "mean": true.magnitudes / true.count}[op]
    found = Fraction(applied(made("reduce", op=op), value).item())
    assert abs(found - expected) <= terms * two(-41) + abs(expected) * Fraction(U64 if value.dtype is torch.float64 else U32)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "int8"])
@pytest.mark.parametrize("op", ["sum", "any", "all"])
def test_integers_of_every_width_are_reduced(op: str, dtype: str) -> None:
    value = torch.tensor([[1, 2], [0, 3]]).to(getattr(torch, dtype))
    assert applied(made("reduce", op=op, dims=[1]), value).tolist() == {"sum": [3, 3], "any": [True, True], "all": [True, False]}[op]


def test_a_sum_of_integers_outside_of_int64_is_refused() -> None:
    with pytest.raises(SignatureError, match="outside of int64"):
        applied(made("reduce", op="sum"), torch.tensor([2**63 - 1, 1]))
