from __future__ import annotations

import pytest
import torch

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from tests.transforms.made import applied, made, same_bits


def test_the_transform_passes_the_conformance_kit() -> None:
    check_transform(made("abs"))


def test_magnitudes_of_complex_numbers_are_real() -> None:
    value = torch.tensor([3 + 4j, -2, 1j], dtype=torch.complex64)
    assert same_bits(applied(made("abs"), value), torch.tensor([5.0, 2.0, 1.0]))


def test_booleans_have_no_magnitude() -> None:
    with pytest.raises(SignatureError, match="`bool` is not taken"):
        made("abs").out(Signature("bool"))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_integers_are_their_own_magnitudes(dtype: torch.dtype) -> None:
    value = torch.tensor([0, 65535]).to(dtype)
    assert same_bits(applied(made("abs"), value), value)


def test_the_smallest_signed_integer_stays_as_it_is() -> None:
    assert applied(made("abs"), torch.tensor([-128, -127], dtype=torch.int8)).tolist() == [-128, 127]
