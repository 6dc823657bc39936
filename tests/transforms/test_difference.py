from __future__ import annotations

import pytest
import torch

from probes.testing import check_transform
from tests.transforms.made import compared, made, same_bits


def test_the_transform_passes_the_conformance_kit() -> None:
    check_transform(made("difference"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_each_difference_is_rounded_once(dtype: torch.dtype) -> None:
    value, other = torch.randn(3, 4, dtype=dtype), torch.randn(3, 4, dtype=dtype)
    assert same_bits(compared(made("difference"), value, other), value - other)


def test_differences_of_short_floats_are_float32() -> None:
    value, other = torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([2.0**-20], dtype=torch.bfloat16)
    assert compared(made("difference"), value, other).item() == 1 - 2.0**-20


def test_tensors_of_other_shapes_are_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"the value has shape \(2, 3\), and the tensor that it is compared with \(3,\)"):
        compared(made("difference"), torch.zeros(2, 3), torch.zeros(3))
