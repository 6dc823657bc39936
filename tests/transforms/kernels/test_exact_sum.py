from __future__ import annotations

import pytest
import torch

from probes.signature import SignatureError
from probes.transforms.kernels.exact_sum import exact_sum


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_sums_of_every_dtype_are_exact(dtype: str) -> None:
    value = torch.tensor([[1, 0, 1], [1, 1, 1]]).to(getattr(torch, dtype))
    assert exact_sum(value, (1,)).tolist() == [2, 3]
    assert exact_sum(value, (0, 1)).item() == 5


def test_sums_beyond_2_to_53_are_exact() -> None:
    assert exact_sum(torch.tensor([2**62, 2**61 + 1, -3]), (0,)).item() == 2**62 + 2**61 - 2
    assert exact_sum(torch.tensor([2**63 - 1, 2**63 - 1, -(2**63)]), (0,)).item() == 2**63 - 2
    assert exact_sum(torch.tensor([2**63 - 2, 1], dtype=torch.uint64), (0,)).item() == 2**63 - 1


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([2**63 - 1, 1]),
        torch.tensor([-(2**63), -1]),
        torch.tensor([2**63], dtype=torch.uint64),
        torch.tensor([2**64 - 1, 2**64 - 1], dtype=torch.uint64),
    ],
    ids=str,
)
def test_a_sum_outside_of_int64_is_refused(value: torch.Tensor) -> None:
    with pytest.raises(SignatureError, match="outside of int64"):
        exact_sum(value, (0,))
