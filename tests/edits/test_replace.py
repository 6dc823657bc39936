from __future__ import annotations

import pytest
import torch

from probes.signature import SignatureError
from probes.testing import check_edit
from tests.edits.made import applied, made


def test_the_edit_passes_the_conformance_kit() -> None:
    check_edit(made("replace", from_={"file": "v.npy"}), source=torch.ones(3, 5), shapes=[(3, 5)])
    patch, dims = made("replace", from_={"file": "v.npy"}, at={"token": 1}), ("batch", "token", "feature")
    check_edit(patch, source=torch.ones(1, 3, 4), shapes=[(1, 3, 4)], dims=dims)


def test_only_the_position_is_replaced() -> None:
    source = torch.full((2, 3), 7.0)
    found = applied(made("replace", from_={"file": "v.npy"}, at={"token": 2}), torch.zeros(2, 3), "batch", "token", source=source)
    assert found.tolist() == [[0.0, 0.0, 7.0]] * 2


def test_a_source_of_another_shape_is_refused() -> None:
    with pytest.raises(SignatureError, match=r"the source has shape \(3,\), and the value \(2,\)"):
        applied(made("replace", from_={"file": "v.npy"}), torch.zeros(2), source=torch.ones(3))
