from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from tests.transforms.made import applied, made


def test_the_transform_passes_the_conformance_kit() -> None:
    check_transform(made("histogram", bins=5, range=[-2, 2]))


def test_every_element_falls_into_one_labelled_bucket() -> None:
    transform = made("histogram", bins=4, range=[-1, 1])
    value = torch.tensor([-9.0, -1.0, -0.5, -0.25, 0.0, 0.5, 1.0, 1.0000001, float("inf"), float("-inf"), float("nan")])
    labels = transform.out(Signature()).coords["bin"]
    counts = dict(zip(labels, applied(transform, value).tolist(), strict=True))
    assert counts == {"under": 2, "[-1, -0.5)": 1, "[-0.5, 0)": 2, "[0, 0.5)": 1, "[0.5, 1]": 2, "over": 2, "nan": 1}


@settings(max_examples=60)
@given(
    st.lists(st.floats(width=32, min_value=-4, max_value=4), max_size=60),
    st.integers(1, 40),
    st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
)
def test_inner_counts_are_those_of_numpy_for_exact_edges(elements: list[float], bins: int, dtype: str) -> None:
    value = torch.tensor(elements, dtype=torch.float64).to(getattr(torch, dtype))
    transform = made("histogram", bins=bins, range=[-0.3, 0.7])
    edges = np.array(transform.edges)  # type: ignore[attr-defined]  # Histogram's own
    exact = value.double().numpy()
    counts = applied(transform, value).tolist()
    assert counts[1:-2] == np.histogram(exact, edges)[0].tolist()
    assert (counts[0], counts[-2], counts[-1]) == (int((exact < edges[0]).sum()), int((exact > edges[-1]).sum()), 0)


@pytest.mark.parametrize("bounds", [[1, 1], [2, 1], [0, float("inf")], [0], [0, 1, 2]])
def test_bounds_ascend(bounds: list[float]) -> None:
    with pytest.raises(ValidationError):
        made("histogram", bins=2, range=bounds)


def test_complex_values_are_refused() -> None:
    with pytest.raises(SignatureError, match="`complex64` is not taken"):
        made("histogram", bins=2, range=[0, 1]).out(Signature("complex64"))


def test_integers_beyond_2_to_53_are_compared_exactly() -> None:
    value = torch.tensor([2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)])
    counts = applied(made("histogram", bins=1, range=[0, 2.0**53]), value).tolist()
    assert counts == [1, 2, 2, 0]
    assert applied(made("histogram", bins=2, range=[-1e30, 1e30]), value).tolist() == [0, 1, 4, 0, 0]


def test_unsigned_integers_of_64_bits_are_compared_exactly() -> None:
    value = torch.tensor([0, 2**53 + 1, 2**63, 2**64 - 1], dtype=torch.uint64)
    assert applied(made("histogram", bins=2, range=[0, 2.0**64]), value).tolist() == [0, 2, 2, 0, 0]
    assert applied(made("histogram", bins=1, range=[1, 2.0**53]), value).tolist() == [1, 0, 3, 0]


def test_the_axes_that_are_not_counted_over_remain() -> None:
    value = torch.tensor([[0.1, 0.6, 2.0], [float("nan"), 0.2, 0.3]])
    transform = made("histogram", bins=2, range=[0, 1], dims=["x"])
    assert applied(transform, value, "batch", "x").T.tolist() == [[0, 1, 1, 1, 0], [0, 2, 0, 0, 1]]
    assert transform.out(Signature("float32", (2, 3), ("batch", "x"))).dims == ("bin", "batch")
    check_transform(made("histogram", bins=3, range=[-1, 1], dims=[-1]), shapes=[(7,), (3, 5), (2, 0), (2, 3, 4)])


def test_bins_that_six_digits_do_not_tell_apart_have_labels_with_more() -> None:
    coarse = made("histogram", bins=2, range=[0.0, 1 / 3]).out(Signature("float32", (4,))).coords["bin"]
    fine = made("histogram", bins=10, range=[1e6, 1e6 + 1]).out(Signature("float32", (4,))).coords["bin"]
    assert coarse[1] == "[0, 0.166667)"
    assert len({*fine}) == 13
    assert fine[1] == "[1000000, 1000000.1)"
