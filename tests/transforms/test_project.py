from __future__ import annotations

import pytest
import torch

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from probes.transforms.project import directions
from tests.rounding import U32, U64, after
from tests.transforms.made import applied, made


def test_the_transform_passes_the_conformance_kit() -> None:
    check_transform(made("project", size=4))
    check_transform(made("project", size=3, dim="token", seed=2), shapes=[(2, 8, 4)], dims=("batch", "token", "feature"))


def test_directions_are_the_same_in_every_release() -> None:
    assert directions(0, 3, 4).tolist() == [[-1, 1, 1, 1], [-1, -1, 1, 1], [-1, 1, 1, -1]]


def test_lengths_are_nearly_kept() -> None:
    value = torch.randn(20, 4096, generator=torch.Generator().manual_seed(0))
    result = applied(made("project", size=1024), value)
    assert result.shape == (20, 1024)
    # A squared length has a relative variance of 2 / 1024 at most: 0.1 is more than four standard deviations, and the seed is fixed.
    assert (result.norm(dim=1) / value.norm(dim=1)).sub(1).abs().max() < 0.1


@pytest.mark.parametrize(("dtype", "u"), [(torch.float32, U32), (torch.float64, U64)])
def test_sums_do_not_leave_the_range(dtype: torch.dtype, u: float) -> None:
    largest = torch.finfo(dtype).max
    signs = directions(0, 64, 1)[:, 0].to(dtype)
    signs[::2] *= -1  # every product cancels with its neighbor
    found = applied(made("project", size=1), torch.stack((signs * largest, signs * float("inf"), signs)))
    assert abs(found[0].item() / largest) <= after(67, u) * 64
    assert not found[1].isfinite().any()
    assert found[2].item() == 0


def test_another_seed_gives_other_directions() -> None:
    assert not torch.equal(directions(0, 64, 4), directions(1, 64, 4))


def test_an_axis_that_is_too_long_is_refused() -> None:
    with pytest.raises(SignatureError, match="reduce the axis with `sample` first"):
        made("project", size=1024).out(Signature("float32", (1 << 20,)))
