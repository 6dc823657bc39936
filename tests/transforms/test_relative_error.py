from __future__ import annotations

import pytest
import torch

from probes.testing import check_transform
from tests.transforms.made import compared, made


@pytest.mark.parametrize("keys", [{}, {"dims": [0]}, {"dims": [-1]}])
def test_the_transform_passes_the_conformance_kit(keys: dict[str, object]) -> None:
    check_transform(made("relative_error", **keys))


def test_the_error_is_relative_to_the_other_tensor_at_each_position() -> None:
    value, other = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    found = compared(made("relative_error", dims=["feature"]), value, other, "batch", "token", "feature")
    expected = (value.double() - other.double()).norm(dim=2) / other.double().norm(dim=2)
    torch.testing.assert_close(found, expected.float())


def test_equal_tensors_have_no_error_and_relative_to_zeros_it_is_infinite() -> None:
    zeros, ones = torch.zeros(3), torch.ones(3)
    found = [compared(made("relative_error"), *pair).item() for pair in ((zeros, zeros), (ones, ones), (ones, zeros), (zeros, ones))]
    assert found == [0, 0, float("inf"), 1]
