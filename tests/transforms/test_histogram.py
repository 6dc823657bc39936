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


def test_the_contract_holds() -> None:
    check_transform(made("histogram", bins=5, range=[-2, 2]))


def test_every_element_falls_into_one_labelled_bucket() -> None:
    transform = made("histogram", bins=4, range=[-1, 1])
    value = torch.tensor([-9.0, -1.0, -0.5, -0.25, 0.0, 0.5, 1.0, 1.0000001, float("inf"), float("-inf"), float("nan")])
    labels = transform.out(Signature()).coords["bin"]
    counts = dict(zip(labels, applied(transform, value).tolist(), strict=True))
    assert counts == {"under": 2, "[-1, -0.5)": 1, "[-0.5, 0)": 2, "[0, 0.5)": 1, "[0.5, 1]": 2, "over": 2, "nan": 1}


@settings(deadline=None, max_examples=60)
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
