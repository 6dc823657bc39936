from __future__ import annotations

import pytest
import torch

from probes.signature import SignatureError
from probes.testing import check_edit
from tests.edits.made import applied, made


def test_the_edit_passes_the_conformance_kit() -> None:
    check_edit(made("add", value=1.5))
    check_edit(made("add", from_={"file": "v.npy"}, scale=2.0), source=torch.arange(4.0), shapes=[(3, 4), (2, 3, 4)])
    check_edit(made("add", value=1.5, at={"token": 1}), shapes=[(2, 3, 4)], dims=("batch", "token", "feature"))


def test_a_vector_is_added_times_the_scale() -> None:
    found = applied(made("add", from_={"file": "v.npy"}, scale=2.0), torch.zeros(2, 2), source=torch.tensor([1.0, 2.0]))
    assert found.tolist() == [[2.0, 4.0]] * 2


def test_a_vector_that_does_not_broadcast_is_refused() -> None:
    with pytest.raises(SignatureError, match="does not broadcast"):
        applied(made("add", from_={"file": "v.npy"}), torch.zeros(2, 2), source=torch.ones(3))


def test_a_complex_source_is_not_added_to_a_real_value() -> None:
    with pytest.raises(SignatureError, match="the source is `complex64`, and the value `float32`, which cannot hold its numbers"):
        applied(made("add", from_={"file": "v.npy"}), torch.zeros(1), source=torch.tensor([1 + 2j]))
