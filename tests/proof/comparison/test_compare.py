from __future__ import annotations

import math

import numpy as np
import pytest

from probes.proof.comparison.compare import PIECE, ToleranceBounds, distance, equal, measure, shown
from probes.signature import DTYPES


def bits(values: list[float], kind: str) -> np.ndarray:
    return np.array(values, kind)


@pytest.mark.parametrize("kind", ["<f2", "<f4", "<f8"])
def test_the_distance_in_ulp_counts_representable_numbers_across_zero(kind: str) -> None:
    tiny = np.finfo(kind).smallest_subnormal
    a = np.array([1, 1, tiny, 0.0, -tiny], kind)
    b = np.array([np.nextafter(a[0], a.dtype.type(2)), 1, -tiny, -0.0, tiny], kind)
    assert distance(a, b).tolist() == [1, 0, 2, 0, 2]


@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"quint8", "qint8", "qint32", "float4_e2m1fn_x2"}))
def test_every_dtype_is_measured(dtype: str) -> None:
    kind = DTYPES[dtype]
    a = np.ones(6 * kind.lanes, f"<{kind.numpy}")
    b = a.copy()
    b[2 * kind.lanes] = 0
    assert not equal(a, b)
    found = measure(a, b, dtype, None)
    assert (found.beyond, found.first) == (1, 2 * kind.lanes)
    assert found.max_abs > 0
    assert shown(a, 2 * kind.lanes, dtype) != shown(b, 2 * kind.lanes, dtype)


def test_elements_after_the_first_piece_count() -> None:
    a = np.zeros(PIECE + 10, "<f4")
    b = a.copy()
    b[PIECE + 3] = 2
    found = measure(a, b, "float32", ToleranceBounds(atol=1.0))
    assert (found.first, found.beyond, found.max_abs, found.max_rel) == (PIECE + 3, 1, 2.0, math.inf)
    assert found.cosine is None


def test_the_tolerance_is_relative_to_the_first_side() -> None:
    a, b = bits([100, 100], "<f4"), bits([101, 103], "<f4")
    assert measure(a, b, "float32", ToleranceBounds(rtol=0.02)).first == 1
    assert measure(a, b, "float32", ToleranceBounds(rtol=0.02, atol=1)).first is None


@pytest.mark.parametrize(
    ("a", "b", "apart"), [(1 << 53, (1 << 53) + 1, 1.0), (-(1 << 63), (1 << 63) - 1, 2.0**64), (-1, 1, 2.0), (7, 7, 0.0)]
)
def test_integers_are_compared_as_integers(a: int, b: int, apart: float) -> None:
    sides = np.array([a], "<i8"), np.array([b], "<i8")
    assert measure(*sides, "int64", ToleranceBounds(atol=0.5)).beyond == (apart > 0.5)
    assert measure(*sides, "int64", None).max_abs == apart
    unsigned = measure(*(side.view("<u8") for side in sides), "uint64", None).max_abs
    assert unsigned == float(abs(b % 2**64 - a % 2**64))


def test_an_infinity_equals_only_itself() -> None:
    a, b = bits([math.inf, math.inf], "<f4"), bits([math.inf, -math.inf], "<f4")
    found = measure(a, b, "float32", ToleranceBounds(rtol=1.0))
    assert (found.first, found.beyond) == (1, 1)


def test_nan_payloads_differ_bit_for_bit_and_agree_within_a_tolerance() -> None:
    a = np.array([0x7FC00000], "<u4").view("<f4")
    b = np.array([0x7FC00001], "<u4").view("<f4")
    assert measure(a, b, "float32", None).beyond == 1
    assert measure(a, b, "float32", ToleranceBounds()).beyond == 0


def test_a_value_is_shown_with_enough_digits_to_distinguish_it() -> None:
    a = bits([0.1], "<f4")
    assert shown(a, 0, "float32") == ("0.1", "0x3dcccccd")
    assert shown(np.array([0x3F80], "<u2"), 0, "bfloat16") == ("1.0", "0x3f80")
    assert shown(bits([1, 2], "<f4"), 1, "complex64")[0] == "(1+2j)"
