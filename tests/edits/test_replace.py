from __future__ import annotations

import pytest
import torch

from probes.signature import SignatureError
from probes.testing import check_edit
from tests.edits.made import applied, made


def test_the_edit_passes_the_conformance_kit() -> None:
    check_edit(made("replace", from_={"file": "v.npy"}), source=torch.ones(3, 5), shapes=[(3, 5)])
    patch, dims = made("replace", from_={"file": "v.npy"}, at={"token": 1}), ("batch", "token", "feature")
    check_edit(patch, source=torch.ones(1, 3, 4), shapes=[(1, 3, 4)], dims=dims)


def test_only_the_position_is_replaced() -> None:
    source = torch.full((2, 3), 7.0)
    found = applied(made("replace", from_={"file": "v.npy"}, at={"token": 2}), torch.zeros(2, 3), "batch", "token", source=source)
    assert found.tolist() == [[0.0, 0.0, 7.0]] * 2


def test_a_source_of_another_shape_is_refused() -> None:
    with pytest.raises(SignatureError, match=r"the source has shape \(3,\), and the value \(2,\)"):
        applied(made("replace", from_={"file": "v.npy"}), torch.zeros(2), source=torch.ones(3))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (torch.tensor([1 + 2j]), torch.zeros(1)),
        (torch.tensor([1 + 2j]), torch.zeros(1, dtype=torch.int64)),
        (torch.tensor([float("nan")]), torch.zeros(1, dtype=torch.int64)),
        (torch.tensor([1.5]), torch.zeros(1, dtype=torch.int64)),
        (torch.tensor([2.0**63]), torch.zeros(1, dtype=torch.int64)),
        (torch.tensor([300]), torch.zeros(1, dtype=torch.uint8)),
        (torch.tensor([-1]), torch.zeros(1, dtype=torch.uint64)),
        (torch.tensor([-1], dtype=torch.int8), torch.zeros(1, dtype=torch.uint8)),
        (torch.tensor([200], dtype=torch.uint8), torch.zeros(1, dtype=torch.int8)),
        (torch.tensor([2**63], dtype=torch.uint64), torch.zeros(1, dtype=torch.int64)),
        (torch.tensor([2]), torch.zeros(1, dtype=torch.bool)),
    ],
)
def test_a_source_whose_numbers_the_dtype_of_the_value_cannot_hold_is_refused(source: torch.Tensor, value: torch.Tensor) -> None:
    message = f"the source is `{str(source.dtype)[6:]}`, and the value `{str(value.dtype)[6:]}`, which cannot hold its numbers"
    with pytest.raises(SignatureError, match=message):
        applied(made("replace", from_={"file": "v.npy"}), value, source=source)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (torch.tensor([1.5], dtype=torch.float64), torch.zeros(1)),
        (torch.tensor([1]), torch.zeros(1)),
        (torch.tensor([1.0]), torch.zeros(1, dtype=torch.complex64)),
        (torch.tensor([255.0]), torch.zeros(1, dtype=torch.uint8)),
        (torch.tensor([65535], dtype=torch.uint16), torch.zeros(1, dtype=torch.int32)),
        (torch.tensor([-(2.0**63)]), torch.zeros(1, dtype=torch.int64)),
        (torch.tensor([1]), torch.zeros(1, dtype=torch.bool)),
    ],
)
def test_a_source_whose_numbers_fit_is_converted(source: torch.Tensor, value: torch.Tensor) -> None:
    found = applied(made("replace", from_={"file": "v.npy"}), value, source=source)
    assert found.dtype is value.dtype
    assert found.tolist() == source.to(value.dtype).tolist()
