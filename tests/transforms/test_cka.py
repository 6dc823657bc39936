from __future__ import annotations

import pytest
import torch

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from tests.transforms.made import compared, made


@pytest.mark.parametrize(("keys", "shapes"), [({}, [(5,), (7, 2), (6, 2, 3)]), ({"dim": 1}, [(2, 6)])])
def test_the_transform_passes_the_conformance_kit(keys: dict[str, object], shapes: list[tuple[int, ...]]) -> None:
    check_transform(made("cka", **keys), shapes=shapes)


def test_a_rotation_a_factor_and_an_offset_change_nothing() -> None:
    value = torch.randn(20, 6, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    found = compared(made("cka"), value, 3 * value @ rotation + 5)
    assert found[0].item() == pytest.approx(1, abs=1e-12)


def test_cka_of_independent_features_is_near_zero_on_average() -> None:
    generator = torch.Generator().manual_seed(0)
    kind = made("cka")
    parts = [compared(kind, *torch.randn(2, 8, 5, generator=generator)) for _ in range(400)]
    total = parts[0]
    for part in parts[1:]:
        total = kind.merge(total, part)  # type: ignore[attr-defined]  # it is an accumulation
    assert abs(total[0].item()) < 0.05  # with the biased estimate it would be about 0.5
    assert total[-1] == 400


def test_few_samples_are_refused() -> None:
    with pytest.raises(SignatureError, match="needs at least 4 samples in a batch, and axis `0` has 3"):
        made("cka").out(Signature("float32", (3, 5)))
    with pytest.raises(ValueError, match="compares the same samples"):
        compared(made("cka"), torch.zeros(5, 2), torch.zeros(6, 2))
