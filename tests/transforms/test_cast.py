from __future__ import annotations

from typing import get_args

import pytest
import torch
from pydantic import ValidationError

from probes.signature import DTYPES, Signature, SignatureError
from probes.testing import check_transform
from probes.transforms.cast import DtypeName
from tests.old_torch import dtypes_here
from tests.transforms.made import applied, made, same_bits


@pytest.mark.parametrize("dtype", dtypes_here(get_args(DtypeName)))
def test_every_target_dtype_passes_the_conformance_kit(dtype: str) -> None:
    check_transform(made("cast", dtype=dtype), shapes=[(), (0,), (2, 3)])


def test_every_target_is_a_dtype_that_files_can_hold() -> None:
    assert set(get_args(DtypeName)) <= set(DTYPES)


def test_values_round_as_torch_rounds_them() -> None:
    value = torch.tensor([1.0, 1.0009765, 65504.0, 70000.0, 1e-8, float("nan")])
    assert same_bits(applied(made("cast", dtype="float16"), value), value.half())
    assert same_bits(applied(made("cast", dtype="float8_e5m2"), value), value.to(torch.float8_e5m2))


def test_the_right_dtype_is_passed_on_without_a_copy() -> None:
    value = torch.randn(3)
    assert applied(made("cast", dtype="float32"), value).data_ptr() == value.data_ptr()


def test_complex_is_not_cast_to_real() -> None:
    with pytest.raises(SignatureError, match="without losing the imaginary part"):
        made("cast", dtype="float32").out(Signature("complex64"))


def test_quantized_values_are_refused_with_advice() -> None:
    with pytest.raises(SignatureError, match=r"`qint8` is not taken.*stored as their bits"):
        made("cast", dtype="float32").out(Signature("qint8"))


def test_an_unknown_dtype_is_a_mistake_in_the_spec() -> None:
    with pytest.raises(ValidationError, match="dtype"):
        made("cast", dtype="torch.float16")
