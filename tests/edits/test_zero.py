from __future__ import annotations

import torch

from probes.testing import check_edit
from tests.edits.made import applied, made


def test_the_edit_passes_the_conformance_kit() -> None:
    check_edit(made("zero"))
    check_edit(made("zero", at={"token": -1}), shapes=[(2, 3, 4)], dims=("batch", "token", "feature"))


def test_no_gradient_passes_through_the_position() -> None:
    value = torch.ones(2, 3, requires_grad=True)
    applied(made("zero", at={"token": 0}), value, "batch", "token").sum().backward()  # type: ignore[no-untyped-call]  # torch's stubs
    assert value.grad is not None
    assert value.grad.tolist() == [[0.0, 1.0, 1.0]] * 2
