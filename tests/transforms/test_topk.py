from __future__ import annotations

from typing import Any

import pytest
import torch

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from tests.transforms.made import applied, made


@pytest.mark.parametrize("keys", [{"size": 3}, {"size": 2, "dim": 0, "keep": "indices"}, {"size": 9, "smallest": True}])
def test_the_transform_passes_the_conformance_kit(keys: dict[str, Any]) -> None:
    check_transform(made("topk", **keys))


def test_the_largest_come_first_and_ties_in_their_order() -> None:
    value = torch.tensor([1.0, 7.0, float("nan"), 7.0, -2.0])
    assert str(applied(made("topk", size=3), value).tolist()) == "[nan, 7.0, 7.0]"
    assert applied(made("topk", size=3, keep="indices"), value).tolist() == [2, 1, 3]
    assert applied(made("topk", size=2, keep="indices", smallest=True), value).tolist() == [4, 0]


def test_the_axis_is_called_rank() -> None:
    named = Signature("float32", (2, 50), ("batch", "feature"))
    assert str(made("topk", size=4, dim="feature").out(named)) == "float32[batch=2, rank=4]"
    assert str(made("topk", size=4).out(Signature("float32", (2, 50)))) == "float32[dim_0=2, rank=4]"


def test_values_without_an_order_are_refused() -> None:
    with pytest.raises(SignatureError, match="`complex64` is not taken"):
        made("topk", size=1).out(Signature("complex64"))
    with pytest.raises(SignatureError, match="the value has no axes"):
        made("topk", size=1).out(Signature("float32", ()))
