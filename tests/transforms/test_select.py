from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from tests.old_torch import indexes_float8
from tests.transforms.made import applied, made, same_bits

IMAGE = ("batch", "channel", "y", "x")


@indexes_float8
@pytest.mark.parametrize(
    "keys",
    [
        {"dim": "channel", "index": -1},
        {"dim": "y", "indices": [3, 0, 0]},
        {"dim": "x", "from_": 1, "until": -1, "every": 2},
        {"dim": -1, "until": 2},
        {"dim": 0, "every": 3},
    ],
)
def test_the_transform_passes_the_conformance_kit(keys: dict[str, Any]) -> None:
    check_transform(made("select", **keys), shapes=[(2, 3, 4, 4), (5, 3, 4, 6)], dims=IMAGE)


def test_index_removes_the_axis() -> None:
    value = torch.randn(2, 3, 4, 4)
    transform = made("select", dim="channel", index=1)
    assert same_bits(applied(transform, value, *IMAGE), value[:, 1])
    assert transform.out(Signature("float32", (2, 3, 4, 4), IMAGE)).dims == ("batch", "y", "x")


def test_indices_keep_their_order_and_may_repeat() -> None:
    value = torch.randn(2, 5)
    assert same_bits(applied(made("select", dim=-1, indices=[4, 0, 0, -2]), value), value[:, [4, 0, 0, 3]])


def test_a_range_is_a_view() -> None:
    value = torch.arange(10)
    result = applied(made("select", dim=0, from_=-4, every=2), value)
    assert result.tolist() == [6, 8]
    assert result.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()


def test_labels_are_selected_with_the_axis() -> None:
    labelled = Signature("float64", (10,), ("stat",), {"stat": tuple("abcdefghij")})
    assert made("select", dim="stat", indices=[1, 3]).out(labelled).coords == {"stat": ("b", "d")}
    assert made("select", dim="stat", until=2).out(labelled).coords == {"stat": ("a", "b")}
    assert made("select", dim="stat", index=0).out(labelled).coords == {}


@pytest.mark.parametrize(
    ("keys", "signature", "message"),
    [
        ({"dim": "token", "index": 0}, Signature("float32", (2, 3), ("batch", "feature")), "`token` is not one of batch, feature"),
        ({"dim": "token", "index": 0}, Signature("float32", (2, 3)), "give the probe `dims`"),
        ({"dim": 2, "index": 0}, Signature("float32", (2, 3)), "axis 2 is out of range"),
        ({"dim": 0, "index": 2}, Signature("float32", (2, 3)), "index 2 is out of range for axis `0` of size 2"),
        ({"dim": 1, "indices": [0, -4]}, Signature("float32", (2, 3)), "index -4 is out of range"),
        ({"dim": 0, "index": 0}, Signature("float32", ()), "the value has no axes"),
    ],
)
def test_settings_that_do_not_fit_the_value_are_refused(keys: dict[str, Any], signature: Signature, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        made("select", **keys).out(signature)


@pytest.mark.parametrize(
    "keys",
    [{}, {"index": 0, "until": 2}, {"index": 0, "indices": [1]}, {"from_": 3, "until": 3}, {"every": 0}, {"index": True}, {"indices": []}],
)
def test_exactly_one_valid_selection_is_required(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        made("select", dim=0, **keys)
