from __future__ import annotations

import pytest
import torch

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from probes.testing.values import DTYPES, SHAPES
from probes.transforms.stats import STATS
from tests.old_torch import dtypes_here
from tests.transforms.made import applied, made


def test_the_transform_passes_the_conformance_kit() -> None:
    dtypes = dtypes_here((*DTYPES, "uint16", "uint64", "float8_e8m0fnu"))
    taken = check_transform(made("stats"), shapes=(*SHAPES, (3, 4099)), dtypes=dtypes)
    assert {signature.dtype for signature in taken} == {*dtypes} - {"complex64"}


def test_numbers_are_in_the_order_of_their_labels() -> None:
    value = torch.tensor([3.0, -4.0, 0.0, -0.0, float("nan"), float("inf"), float("inf"), float("-inf")])
    numbers = dict(zip(STATS, applied(made("stats"), value).tolist(), strict=True))
    std = (25 / 4 - (1 / 4) ** 2) ** 0.5
    expected = {"count": 8, "mean": -0.25, "std": std, "min": -4, "max": 3, "l2": 5, "zeros": 2, "nan": 1, "+inf": 2, "-inf": 1}
    assert numbers == pytest.approx(expected, rel=2**-40)
    assert made("stats").out(Signature()).coords == {"stat": STATS}


@pytest.mark.parametrize("value", [torch.zeros(0), torch.zeros(3, 0), torch.zeros(0, dtype=torch.int64)])
def test_stats_of_no_elements_are_a_count_of_zero(value: torch.Tensor) -> None:
    count, mean, std, low, high, l2, *special = applied(made("stats"), value).tolist()
    assert (count, l2, special) == (0, 0, [0, 0, 0, 0])
    assert all(number != number for number in (mean, std, low, high))


def test_complex_values_are_refused_with_advice() -> None:
    with pytest.raises(SignatureError, match="such as `abs`"):
        made("stats").out(Signature("complex64"))
