from __future__ import annotations

import pytest
import torch

from probes.signature import SignatureError
from probes.testing import check_edit
from tests.edits.made import applied, made


def test_the_edit_passes_the_conformance_kit() -> None:
    check_edit(made("scale", by=0.5))
    check_edit(made("scale", by=-2.0, at={"token": 1}), shapes=[(2, 3, 4)], dims=("batch", "token", "feature"))


def test_only_the_position_is_scaled() -> None:
    found = applied(made("scale", by=10.0, at={"token": 1}), torch.ones(2, 3), "batch", "token")
    assert found.tolist() == [[1.0, 10.0, 1.0]] * 2


def test_integers_are_refused_because_the_result_would_be_a_float() -> None:
    with pytest.raises(SignatureError, match="`int64` is not taken"):
        applied(made("scale", by=0.5), torch.ones(3, dtype=torch.int64))
