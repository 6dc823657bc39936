from __future__ import annotations

import pytest
import torch

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from tests.transforms.made import compared, made


@pytest.mark.parametrize("keys", [{}, {"dims": [0]}, {"dims": [-1]}])
def test_the_transform_passes_the_conformance_kit(keys: dict[str, object]) -> None:
    check_transform(made("cosine", **keys))


def test_the_cosine_is_that_of_the_angle_at_each_position() -> None:
    value, other = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    found = compared(made("cosine", dims=["feature"]), value, other, "batch", "token", "feature")
    torch.testing.assert_close(found, torch.cosine_similarity(value.double(), other.double(), dim=2).float())


def test_huge_and_tiny_tensors_have_an_angle_and_zeros_have_none() -> None:
    value = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert compared(made("cosine"), value * 1e300, value * 1e-300).item() == pytest.approx(1, abs=2**-39)
    assert compared(made("cosine"), value, torch.zeros_like(value)).isnan()


def test_integers_are_refused_with_advice_and_a_single_tensor_too() -> None:
    with pytest.raises(SignatureError, match="put a cast to float32 before it"):
        made("cosine").out(Signature("int64"))
    with pytest.raises(SignatureError, match="add `against` to the probe"):
        made("cosine").begin(Signature("float32", (3,)))
