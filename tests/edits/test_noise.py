from __future__ import annotations

import torch

from probes.testing import check_edit
from tests.edits.made import applied, made


def test_the_edit_passes_the_conformance_kit() -> None:
    check_edit(made("noise", std=0.5))
    check_edit(made("noise", std=0.5, at={"token": 1}), shapes=[(2, 3, 4)], dims=("batch", "token", "feature"))


def test_the_noise_has_the_standard_deviation_and_follows_the_seed() -> None:
    value = torch.zeros(10_000)
    found = applied(made("noise", std=2.0), value, seed=3)
    assert abs(float(found.std()) - 2.0) < 0.1  # 7 standard errors of 2 / sqrt(2 * 10,000)
    assert not torch.equal(found, applied(made("noise", std=2.0), value, seed=4))
