from __future__ import annotations

import pytest
import torch

from probes.signature import SignatureError
from probes.testing import check_edit
from tests.edits.made import applied, made


def test_the_edit_passes_the_conformance_kit() -> None:
    check_edit(made("clamp", min=-1.0, max=2.0))
    check_edit(made("clamp", max=0.0, at={"token": 1}), shapes=[(2, 3, 4)], dims=("batch", "token", "feature"))


def test_elements_outside_the_bounds_become_the_nearer_bound() -> None:
    assert applied(made("clamp", min=-1.0, max=2.0), torch.tensor([-3.0, 0.5, 3.0])).tolist() == [-1.0, 0.5, 2.0]


@pytest.mark.parametrize("value", [torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.complex64)], ids=str)
def test_integers_and_complex_numbers_are_refused(value: torch.Tensor) -> None:
    with pytest.raises(SignatureError, match="is not taken"):
        applied(made("clamp", min=0.0), value)
