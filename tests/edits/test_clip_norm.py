from __future__ import annotations

import pytest
import torch

from probes.signature import SignatureError
from probes.testing import check_edit
from tests.edits.made import applied, made


def test_the_edit_passes_the_conformance_kit() -> None:
    check_edit(made("clip_norm", max_norm=1.0))


def test_a_long_gradient_is_scaled_down_and_a_short_one_is_kept() -> None:
    edit = made("clip_norm", max_norm=1.0)
    assert torch.allclose(applied(edit, torch.tensor([3.0, 4.0])), torch.tensor([0.6, 0.8]))
    assert applied(edit, torch.tensor([0.25, 0.5])).tolist() == [0.25, 0.5]


def test_a_norm_beyond_the_range_of_squares_is_still_right() -> None:
    found = applied(made("clip_norm", max_norm=1.0), torch.tensor([3e30, 4e30]))
    assert torch.allclose(found, torch.tensor([0.6, 0.8]))


def test_integers_are_refused() -> None:
    with pytest.raises(SignatureError, match="`int64` is not taken"):
        applied(made("clip_norm", max_norm=1.0), torch.ones(3, dtype=torch.int64))
