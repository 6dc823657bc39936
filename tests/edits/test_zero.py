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


def test_the_gradient_of_what_is_zeroed_or_replaced_is_zero_and_not_absent() -> None:
    for edit, source in ((made("zero"), None), (made("replace", from_={"file": "v.npy"}), torch.ones(3))):
        leaf = torch.randn(3, requires_grad=True)
        applied(edit, leaf * 2, source=source).sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.tolist() == [0.0] * 3


def test_a_source_is_not_changed_by_a_module_that_writes_to_the_value() -> None:
    source = torch.ones(3)
    applied(made("replace", from_={"file": "v.npy"}), torch.zeros(3), source=source).mul_(2)
    assert source.tolist() == [1.0] * 3
