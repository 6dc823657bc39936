from __future__ import annotations

import pytest
import torch

from probes.component import EditContext
from probes.signature import Signature, SignatureError
from probes.testing import check_edit
from tests.edits.made import applied, made


def test_the_edit_passes_the_conformance_kit() -> None:
    check_edit(made("mixup", lam=0.7))
    check_edit(made("mixup", alpha=0.4), dims=("token", "batch"))


def test_samples_are_mixed_along_the_axis_named_batch() -> None:
    value = torch.tensor([[0.0, 1.0, 2.0], [0.0, 10.0, 20.0]])
    found = applied(made("mixup", lam=1.0), value, "feature", "batch")
    assert torch.equal(found, value)
    swapped = applied(made("mixup", lam=0.0), value, "feature", "batch", seed=1)
    assert sorted(map(tuple, swapped.T.tolist())) == [(0.0, 0.0), (1.0, 10.0), (2.0, 20.0)]


def test_a_value_without_axes_is_refused() -> None:
    with pytest.raises(SignatureError, match="no batch to mix"):
        applied(made("mixup", lam=0.5), torch.tensor(1.0))


def test_a_permutation_has_one_axis() -> None:
    edit = made("mixup", lam=0.5, permutation={"given": "p"})
    context = EditContext(Signature("float32", (3, 2)), None, {"p": torch.tensor([[1, 2, 0]])})
    with pytest.raises(SignatureError, match="`p` is not a permutation of the 3 samples"):
        edit.begin(context)(torch.ones(3, 2), torch.Generator())
