from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.component import Accumulation
from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from probes.transforms.accumulate import MOMENTS
from probes.transforms.kernels import accumulation, samples
from probes.transforms.kernels.accumulation import moments
from probes.transforms.kernels.summation import device_sum
from tests.conftest import SEED
from tests.rounding import after, within
from tests.transforms.made import applied, made, same_bits
from tests.warm import programs


def accumulate(**keys: object) -> Accumulation:
    found = made("accumulate", **keys)
    assert isinstance(found, Accumulation)
    return found


def merged(transform: Accumulation, values: list[torch.Tensor]) -> torch.Tensor:
    parts = [applied(transform, value) for value in values]
    result = parts[0]
    for part in parts[1:]:
        result = transform.merge(result, part)
    return result


def test_the_transform_passes_the_conformance_kit() -> None:
    taken = check_transform(accumulate())
    assert {signature.dtype for signature in taken} == {"bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64"}
    check_transform(accumulate(dims=[0]))
    check_transform(accumulate(dims=["a", -1]), shapes=[(2, 3, 4)], dims=("a", "b", "c"))
    check_transform(accumulate(what="covariance", dims=[0]), shapes=[(3, 5), (2, 0), (0, 3)])
    check_transform(accumulate(what="covariance", dims=["a", "c"]), shapes=[(2, 3, 4)], dims=("a", "b", "c"))


@pytest.mark.parametrize("dims", [None, [0], [0, 2]])
def test_merged_parts_equal_the_whole(dims: list[int] | None) -> None:
    values = [torch.randn(n, 3, 4, generator=torch.Generator().manual_seed(SEED + n)) * 5 + 100 for n in (7, 1, 32)]
    transform = accumulate(**({"dims": dims} if dims else {}))
    whole = torch.cat(values).double().numpy()
    axes = tuple(dims) if dims else (0, 1, 2)
    expected = [
        np.full(whole.mean(axes).shape, np.prod([whole.shape[axis] for axis in axes])),
        np.zeros(whole.mean(axes).shape),
        *(kernel(whole, axes) for kernel in (np.mean, np.var, np.min, np.max)),
    ]
    bound = after(2, 2**-39) * np.abs(expected)  # ours, and as much for numpy and the merges
    assert within(merged(transform, values), np.stack(expected), bound)


def test_merged_covariance_equals_that_of_numpy() -> None:
    values = [torch.randn(n, 5, generator=torch.Generator().manual_seed(SEED + n)) @ torch.triu(torch.ones(5, 5)) + 30 for n in (9, 2, 40)]
    result = merged(accumulate(what="covariance", dims=[0]), values).numpy()
    whole = torch.cat(values).double().numpy()
    assert (result[0] == 51).all()
    assert (result[1] == 0).all()
    spread = whole.std(0)
    assert within(result[2], whole.mean(0), 2**-39 * (spread + np.abs(whole.mean(0))))
    assert within(result[3:], np.cov(whole.T, bias=True), 2**-38 * np.outer(spread, spread))


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    values = [torch.tensor([1e9 + step + 1, 1e9 + step + 2], dtype=torch.float64) for step in range(100)]
    variance = merged(accumulate(), values)[MOMENTS.index("variance")].item()
    assert variance == pytest.approx(np.var([step + offset for step in range(100) for offset in (1, 2)]), rel=1e-9)


def test_values_that_are_not_finite_are_counted_and_left_out() -> None:
    values = [torch.tensor([1.0, float("nan")]), torch.tensor([float("inf"), float("-inf")]), torch.tensor([3.0])]
    assert merged(accumulate(), values).tolist() == [2, 3, 2, 1, 1, 3]
    rows = [torch.tensor([[1.0, 2.0], [float("nan"), 0.0]]), torch.tensor([[3.0, 6.0]])]
    assert merged(accumulate(what="covariance", dims=[0]), rows).tolist() == [[2, 2], [1, 1], [2, 4], [1, 2], [2, 4]]


def test_an_empty_part_adds_nothing() -> None:
    nothing, something = applied(accumulate(), torch.empty(0)), applied(accumulate(), torch.tensor([2.0, 4.0]))
    for pair in ((nothing, something), (something, nothing)):
        assert same_bits(accumulate().merge(*pair), something)
    count, nonfinite, *rest = accumulate().merge(nothing, nothing).tolist()
    assert (count, nonfinite) == (0, 0)
    assert all(number != number for number in rest)


@settings(max_examples=60)
@given(parts=st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), min_size=2, max_size=6), cut=st.integers(1, 5))
def test_the_grouping_of_parts_does_not_matter(parts: list[list[float]], cut: int) -> None:
    values = [torch.tensor(part) for part in parts]
    cut = min(cut, len(values) - 1)
    transform = accumulate()
    grouped = transform.merge(merged(transform, values[:cut]), merged(transform, values[cut:]))
    largest = max(abs(number) for part in parts for number in part)
    one, other = grouped, merged(transform, values)
    assert one[[0, 1, 4, 5]].tolist() == other[[0, 1, 4, 5]].tolist()
    # 2**-40 of the stated bound for each value, then five merges of a few roundings, all of numbers up to the largest; on both sides
    assert within(one[2], other[2], 2**-38 * largest)
    assert within(one[3], other[3], 2**-37 * largest**2)


def test_values_that_change_their_shape_within_an_epoch_cannot_be_merged() -> None:
    transform = accumulate(dims=[0])
    with pytest.raises(ValueError, match="changed its shape within the epoch"):
        transform.merge(applied(transform, torch.ones(2, 3)), applied(transform, torch.ones(2, 4)))


def test_the_number_of_threads_does_not_matter() -> None:
    code = (
        "import sys, torch; torch.set_num_threads(int(sys.argv[1]));"
        "from probes.transforms.kernels.accumulation import *;"
        "v = torch.randn(20000, 48, generator=torch.Generator().manual_seed(0));"
        "print(moments(v).numpy().tobytes().hex()[:4000], covariance(v[:2000]).numpy().tobytes().hex()[:9000])"
    )
    said = [programs.run("-c", code, str(count), env=os.environ | {"OMP_NUM_THREADS": str(count)}, check=True).stdout for count in (1, 4)]
    assert said[0] == said[1]


def test_the_formulation_for_other_devices_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
    values[3, 1], values[4, 2] = float("nan"), float("inf")
    for rows in (values, values[:0]):
        on_host = moments(rows)
        with monkeypatch.context() as patch:
            patch.setattr(accumulation, "_sum", device_sum)
            one, other = moments(rows), on_host
            assert within(one[[0, 1, 4, 5]], other[[0, 1, 4, 5]], 0)
            assert within(one[2], other[2], 2**-39 * other[3].sqrt() + 2**-51 * other[2].abs())  # the stated bound, on both sides
            assert within(one[3], other[3], 2**-38 * other[3])


@pytest.mark.parametrize(
    ("keys", "signature", "why"),
    [
        ({}, Signature("complex64"), "put `abs` or `cast` before it"),
        ({"what": "covariance"}, Signature("float32", (2, 3)), "none would remain"),
        ({"what": "covariance", "dims": [0]}, Signature("float32", (2, 3, 4)), "2 would remain"),
        ({"what": "covariance", "dims": [0]}, Signature("float32", (2, 5000)), "5000 features"),
        ({"dims": ["x"]}, Signature("float32", (2,), ("y",)), "not one of"),
    ],
)
def test_values_that_cannot_be_accumulated_are_refused(keys: dict[str, object], signature: Signature, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        accumulate(**keys).out(signature)


def test_over_time_alone_every_element_has_its_own_statistics() -> None:
    transform = accumulate(dims=[])
    found = merged(transform, [torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 2.0]])])
    numbers = dict(zip(MOMENTS, found.tolist(), strict=True))
    assert numbers["count"] == [[2.0, 2.0]]
    assert (numbers["mean"], numbers["variance"]) == ([[2.0, 2.0]], [[1.0, 0.0]])
    assert transform.out(Signature("float32", (1, 2), ("batch", "x"))).dims == ("stat", "batch", "x")
    check_transform(transform)


def test_means_beyond_the_range_of_sums_are_right() -> None:
    found = applied(accumulate(), torch.full((4,), 1.7e308, dtype=torch.float64))
    assert (found[2].item(), found[3].item()) == (1.7e308, 0.0)


def test_the_largest_values_and_the_sums_by_label_pass_the_conformance_kit() -> None:
    check_transform(accumulate(what="topk", size=3))


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"size": 3}, "`size` has no effect with `what: moments`"),
        ({"what": "topk"}, "`what: topk` needs `size`"),
        ({"what": "sums", "by": "loop.labels"}, "`what: sums` needs `labels`"),
        ({"what": "sums", "by": "output.x", "labels": 3}, "`by` must be an input of the same call"),
        ({"what": "topk", "size": 3, "dims": [0]}, "`dims` has no effect"),
    ],
)
def test_options_without_effect_and_options_that_are_missing_are_refused(keys: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        accumulate(**keys)


def test_sums_need_one_integer_for_each_sample() -> None:
    with pytest.raises(ValueError, match=r"one integer for each of the 3 samples, and the labels are float32\[3\]"):
        samples.sums_by_label(torch.zeros(3, 2), torch.zeros(3), 4)
