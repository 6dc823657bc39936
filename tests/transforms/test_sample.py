from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from probes.transforms.sample import positions
from tests.old_torch import indexes_float8
from tests.transforms.made import applied, made, same_bits


@indexes_float8
def test_the_transform_passes_the_conformance_kit() -> None:
    check_transform(made("sample", size=5))
    check_transform(
        made("sample", size=3, dim="token", seed=1), shapes=[(2, 8, 4), (2, 2, 4), (0, 8, 4)], dims=("batch", "token", "feature")
    )


def test_positions_are_the_same_in_every_release() -> None:
    assert positions(0, 100, 6) == [25, 40, 50, 72, 80, 99]


@given(st.integers(0, 2**64), st.integers(0, 300), st.data())
def test_positions_are_distinct_and_ascend(seed: int, size: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, size))
    found = positions(seed, size, count)
    assert len(found) == count
    assert found == sorted(set(found))
    assert all(0 <= position < size for position in found)


def test_captures_of_one_size_are_sampled_at_the_same_positions() -> None:
    work = made("sample", size=4).begin(Signature("int64", (50,)))
    first, other, again = work(torch.arange(50)), work(torch.arange(60)), work(torch.arange(50))
    assert same_bits(first, again)
    assert not same_bits(first, other)
    assert not same_bits(first, applied(made("sample", size=4, seed=1), torch.arange(50)))


def test_along_an_axis_whole_slices_are_kept() -> None:
    value = torch.randn(2, 9, 3)
    assert same_bits(applied(made("sample", size=4, dim=1), value), value[:, positions(0, 9, 4)])


def test_all_elements_are_kept_if_there_are_fewer_than_requested() -> None:
    value = torch.randn(2, 3)
    assert same_bits(applied(made("sample", size=100), value), value.flatten())


def test_a_value_without_axes_has_none_to_sample_from() -> None:
    with pytest.raises(SignatureError, match="the value has no axes"):
        made("sample", size=1, dim=0).out(Signature("float32", ()))
