from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from probes.signature import Signature
from probes.testing import check_transform
from tests.rounding import U32, within
from tests.transforms.made import applied, made

Q = [0, 0.05, 0.5, 0.9, 1]


@pytest.mark.parametrize("keys", [{"q": Q}, {"q": [0.5], "dim": -1}, {"q": Q, "dim": 0}])
def test_the_transform_passes_the_conformance_kit(keys: dict[str, Any]) -> None:
    check_transform(made("quantile", **keys), shapes=[(7,), (3, 5), (2, 0), (2, 3, 4)])


def test_the_numbers_are_numpys() -> None:
    value = torch.randn(5, 101, dtype=torch.float64)
    bound = 2**-50 * value.abs().max()  # 2**-51 of the larger neighbor for each of the two
    assert within(applied(made("quantile", q=Q), value), np.quantile(value.numpy(), Q), bound)
    assert within(applied(made("quantile", q=Q, dim=1), value).T, np.quantile(value.numpy(), Q, axis=1), bound)


def test_nan_and_nothing_give_nan() -> None:
    value = torch.tensor([[1.0, 2.0, 3.0], [1.0, float("nan"), 3.0]])
    assert str(applied(made("quantile", q=[0.5], dim=1), value).tolist()) == "[[2.0], [nan]]"
    assert applied(made("quantile", q=[0.5]), torch.zeros(0)).isnan().all()


def test_the_axis_is_labelled_with_the_quantiles() -> None:
    assert made("quantile", q=Q).out(Signature()).coords == {"quantile": tuple(Q)}


@pytest.mark.parametrize("q", [[], [1.1], [-0.1], ["0.5"]])
def test_quantiles_lie_between_0_and_1(q: list[Any]) -> None:
    with pytest.raises(ValidationError):
        made("quantile", q=q)


def test_an_infinite_neighbor_of_weight_0_does_not_count() -> None:
    value = torch.tensor([float("-inf"), 1.0, 2.0, 3.0, float("inf")])
    assert applied(made("quantile", q=[0.25, 0.5, 0.75, 1.0]), value).tolist() == [1.0, 2.0, 3.0, float("inf")]
    assert applied(made("quantile", q=[0.1, 0.9]), value).tolist() == [float("-inf"), float("inf")]


def test_neighbors_whose_distance_exceeds_the_dtype_are_interpolated() -> None:
    assert applied(made("quantile", q=[0.5]), torch.tensor([-3e38, 3e38])).tolist() == [0.0]


def test_several_axes_are_reduced_by_name() -> None:
    value = torch.randn(3, 4, 5)
    transform = made("quantile", q=Q, dims=["batch", "token"])
    found = applied(transform, value, "batch", "feature", "token")
    assert transform.out(Signature("float32", (3, 4, 5), ("batch", "feature", "token"))).dims == ("quantile", "feature")
    expected = np.quantile(value.double().numpy(), Q, axis=(0, 2))
    assert within(found, expected, (U32 + 2**-50) * value.abs().max())
    check_transform(made("quantile", q=Q, dims=[0, -1]), shapes=[(3, 5), (2, 0), (2, 3, 4)])


def test_dim_and_dims_together_are_refused() -> None:
    with pytest.raises(ValidationError, match="not both"):
        made("quantile", q=Q, dim=0, dims=[1])


def test_a_share_given_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"`q` has 0\.5 twice"):
        made("quantile", q=[0.5, 0.1, 0.5])
