from __future__ import annotations

from math import log

import pytest
import torch

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from tests.rounding import U32, within
from tests.transforms.made import applied, made


@pytest.mark.parametrize("of", ["probabilities", "logits"])
def test_the_transform_passes_the_conformance_kit(of: str) -> None:
    check_transform(made("entropy", of=of))
    check_transform(made("entropy", of=of, dim="key"), shapes=[(2, 3, 4)], dims=("head", "query", "key"))


def test_a_uniform_distribution_has_the_logarithm_of_its_size() -> None:
    assert applied(made("entropy"), torch.full((8,), 1 / 8)).item() == pytest.approx(log(8), rel=U32 + 2**-40)
    assert applied(made("entropy", of="logits"), torch.zeros(8)).item() == pytest.approx(log(8), rel=U32 + 2**-40)


def test_a_certain_outcome_has_zero_entropy() -> None:
    assert applied(made("entropy"), torch.tensor([0.0, 1.0, 0.0])).item() == 0


def test_half_precision_is_computed_in_single() -> None:
    value = torch.rand(4, 1000).softmax(1)
    assert applied(made("entropy"), value.half()).dtype is torch.float32
    exact = torch.special.entr(value.half().double()).sum(1)
    assert within(applied(made("entropy"), value.half()), exact, (U32 + 2**-39) * exact)


def test_a_number_is_not_a_distribution() -> None:
    with pytest.raises(SignatureError, match="the value has no axes"):
        made("entropy").out(Signature("float32", ()))
