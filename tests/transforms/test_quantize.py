from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from probes.testing import check_transform
from tests.rounding import U64, after
from tests.transforms.made import applied, made


@pytest.mark.parametrize("bits", [8, 16])
def test_the_transform_passes_the_conformance_kit(bits: int) -> None:
    check_transform(made("quantize", bits=bits, range=[-2, 2]))


def test_codes_are_equidistant_and_nan_has_its_own() -> None:
    value = torch.tensor([-1.0, 0.0, 1.0, -9.0, float("inf"), float("-inf"), float("nan")])
    assert applied(made("quantize", range=[-1, 1]), value).tolist() == [0, 127, 254, 0, 254, 0, 255]
    assert applied(made("quantize", range=[-1, 1], bits=16), value).tolist()[-3:] == [65534, 0, 65535]


def test_the_value_of_a_code_is_near_the_element() -> None:
    value = torch.rand(1000, dtype=torch.float64) * 3 - 1
    codes = applied(made("quantize", range=[-1, 2]), value).double()
    roundings = after(4, U64) * 4  # of numbers up to 4: the step, two differences, the quotient
    assert (codes * 3 / 254 - 1 - value).abs().max() <= 1.5 / 254 + roundings


@pytest.mark.parametrize("keys", [{"range": [1, 1]}, {"range": [0, 1], "bits": 4}, {}])
def test_settings_that_cannot_work_are_errors(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        made("quantize", **keys)
