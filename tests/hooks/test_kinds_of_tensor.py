"""Tensors that are not one piece of dense memory, and values that are no tensors: captured truly, or refused with the reason."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import probes
from probes.errors import RunError
from probes.runner.triggers.nonfinite import is_finite, numbers
from probes.tensors import NotCapturable


class Gives(nn.Module):
    """A model with one part, which returns a given value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.part = Part(value)

    def forward(self, x: Tensor) -> Tensor:
        self.part(x)
        return x


class Part(nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = [value]

    def forward(self, x: Tensor) -> Any:
        return self.value[0]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls several of these layouts prototypes
        yield


def record(value: Any, path: Path, steps: int = 2, **probe: Any) -> Any:
    model = Gives(value)
    settings = {"hook": "forward", "modules": ["part"], **probe}
    with probes.attach(model, {"version": 1, "name": "t", "probes": {"p": settings}}, out=path / "run") as run:
        for x in run.steps([torch.ones(1)] * steps):
            model(x)
    return probes.open(path / "run")


def stored(read: Any, leaf: str) -> Tensor:
    """The first of two captures of a leaf, which are the same."""
    first, second = read["p", "part", leaf].torch()
    assert torch.equal(first, second)
    return first


DENSE = torch.tensor([[0.0, 1.5, 0.0, -2.0], [0.0, 0.0, 3.0, 0.0]])


def test_an_uncoalesced_sparse_tensor_is_stored_as_it_is(tmp_path: Path) -> None:
    value = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [1, 1, 2]]), torch.tensor([1.0, 2.0, 3.0]), (2, 4))
    read = record(value, tmp_path)
    assert torch.equal(stored(read, "output.indices"), value._indices())
    assert torch.equal(stored(read, "output.values"), value._values())
    assert stored(read, "output.size").tolist() == [2, 4]
    assert not stored(read, "output.coalesced")


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_a_compressed_sparse_tensor_can_be_put_together_again(tmp_path: Path, layout: str) -> None:
    value = getattr(DENSE, f"to_sparse_{layout}")(*([(1, 2)] if layout in ("bsr", "bsc") else []))
    read = record(value, tmp_path)
    names = ("crow_indices", "col_indices") if layout in ("csr", "bsr") else ("ccol_indices", "row_indices")
    parts = [stored(read, f"output.{name}") for name in (*names, "values")]
    again = torch.sparse_compressed_tensor(*parts, tuple(stored(read, "output.size").tolist()), layout=value.layout)
    assert torch.equal(again.to_dense(), DENSE)


def test_a_sparse_gradient_of_an_embedding_is_stored(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True))
    spec = {"version": 1, "probes": {"p": {"hook": "tensor", "tensors": ["0.weight"], "stage": "accumulated"}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for x in run.steps([torch.tensor([1, 4, 1])]):
            model(x).sum().backward()
    read = probes.open(tmp_path / "run")
    gradient = model[0].weight.grad
    assert torch.equal(read["p", "0.weight", "grad.indices"].torch()[0], gradient._indices())
    assert torch.equal(read["p", "0.weight", "grad.values"].torch()[0], gradient._values())


def test_a_jagged_tensor_is_stored_as_values_and_offsets(tmp_path: Path) -> None:
    value = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(4, 3)], layout=torch.jagged)
    read = record(value, tmp_path)
    assert torch.equal(stored(read, "output.values"), value.values())
    assert stored(read, "output.offsets").tolist() == [0, 2, 6]


def test_a_nested_tensor_is_stored_as_values_and_sizes(tmp_path: Path) -> None:
    value = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(1, 4)])
    read = record(value, tmp_path)
    assert torch.equal(stored(read, "output.values"), torch.cat([torch.ones(6), torch.zeros(4)]))
    assert stored(read, "output.sizes").tolist() == [[2, 3], [1, 4]]


def test_a_quantised_tensor_is_stored_with_its_scale_and_zero_point(tmp_path: Path) -> None:
    value = torch.quantize_per_tensor(DENSE, 0.5, 3, torch.quint8)
    read = record(value, tmp_path)
    whole = (stored(read, "output.int_repr").float() - stored(read, "output.zero_point")) * stored(read, "output.scale")
    assert torch.equal(whole.float(), value.dequantize())


def test_a_tensor_quantised_by_channel_is_stored_with_its_axis(tmp_path: Path) -> None:
    value = torch.quantize_per_channel(DENSE, torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.qint8)
    read = record(value, tmp_path)
    assert stored(read, "output.axis") == 0
    assert torch.equal(stored(read, "output.int_repr"), value.int_repr())
    assert stored(read, "output.scale").tolist() == [0.5, 0.25]


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch is built without oneDNN")
def test_a_tensor_of_mkldnn_is_stored_dense(tmp_path: Path) -> None:
    assert torch.equal(stored(record(DENSE.to_mkldnn(), tmp_path), "output"), DENSE)


@pytest.mark.parametrize(
    "value",
    [
        DENSE.t(),
        DENSE[:, :1].expand(2, 3),
        torch.ones(1, 3, 2, 2).to(memory_format=torch.channels_last),
        torch.tensor(2.5),
        torch.empty(0, 3),
    ],
    ids=["transposed", "expanded", "channels-last", "0-d", "zero-size"],
)
def test_a_dense_tensor_of_any_strides_is_stored(tmp_path: Path, value: Tensor) -> None:
    assert torch.equal(stored(record(value, tmp_path), "output"), value)


def test_a_conjugate_is_stored_resolved(tmp_path: Path) -> None:
    value = torch.tensor([1 + 2j, 3 - 1j]).conj()
    assert torch.equal(stored(record(value, tmp_path), "output"), value.resolve_conj())


def freed(view: Callable[[Tensor], Tensor]) -> Tensor:
    """A view of storage that was freed after it was made."""
    whole = torch.ones(3000)
    tensor = view(whole)
    whole.untyped_storage().resize_(0)
    return tensor


FREED = {
    "whole": lambda whole: whole,
    "behind the start": lambda whole: whole[1000:2000],
    "transposed": lambda whole: whole.view(2, 1500).t(),
    "expanded": lambda whole: whole[2000].expand(5),
}


@pytest.mark.parametrize("make", [lambda: torch.empty(3, device="meta"), *(partial(freed, view) for view in FREED.values())])
def test_a_tensor_without_memory_is_skipped_with_the_reason(tmp_path: Path, make: Any) -> None:
    with pytest.raises(RunError, match="no memory"):
        record(make(), tmp_path)


@pytest.mark.parametrize("view", FREED.values(), ids=FREED)
@pytest.mark.parametrize("kind", ["stats", "norm", "abs", "accumulate"])
def test_transforms_do_not_read_storage_that_was_freed(tmp_path: Path, kind: str, view: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RunError, match="no memory"):
        record(freed(view), tmp_path, transforms=[{"kind": kind}])


def test_a_condition_does_not_read_storage_that_was_freed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no memory"):
        record(freed(FREED["behind the start"]), tmp_path, where={"of": {"kind": "norm"}, "above": 0})


def test_storage_that_is_freed_after_the_first_capture_is_not_read(tmp_path: Path) -> None:
    whole = torch.ones(3000)
    model = Gives(whole[1000:2000])
    spec = {"version": 1, "name": "t", "probes": {"p": {"hook": "forward", "modules": ["part"], "expect": {"fires": "some"}}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for step, x in enumerate(run.steps([torch.ones(1)] * 3)):
            if step == 2:
                whole.untyped_storage().resize_(0)
            model(x)
    assert probes.open(tmp_path / "run")["p", "part"].numpy().tolist() == [[1.0] * 1000] * 2


def test_a_transform_of_a_sparse_tensor_is_skipped_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="transforms take dense tensors, and the tensor is sparse_coo: indices, values"):
        record(DENSE.to_sparse(), tmp_path, transforms=[{"kind": "stats"}])


def test_a_packed_sequence_is_stored_by_its_fields(tmp_path: Path) -> None:
    packed = pack_sequence([torch.ones(2, 3), torch.zeros(3, 3)], enforce_sorted=False)
    model = nn.Sequential(nn.LSTM(3, 2))
    with probes.attach(
        model, {"version": 1, "probes": {"p": {"modules": ["0"], "values": ["input", "output"]}}}, out=tmp_path / "run"
    ) as run:
        for x in run.steps([packed]):
            out, (h, c) = model(x)
    assert isinstance(out, PackedSequence)
    read = probes.open(tmp_path / "run")
    assert torch.equal(read["p", "0", "input.input.data"].torch()[0], packed.data)
    assert torch.equal(read["p", "0", "output.0.data"].torch()[0], out.data)
    assert torch.equal(read["p", "0", "output.0.batch_sizes"].torch()[0], packed.batch_sizes)
    assert torch.equal(read["p", "0", "output.1.0"].torch()[0], h)
    assert torch.equal(read["p", "0", "output.1.1"].torch()[0], c)


class DynamicCache:
    """Looks like the cache of a language model: tensors inside, no container outside."""

    def __init__(self) -> None:
        self.keys = torch.ones(2)


@dataclass
class Answer:
    logits: Tensor
    cache: DynamicCache


def test_a_path_to_a_cache_is_refused_with_a_replacement(tmp_path: Path) -> None:
    for path, name in (("output.cache", "one"), ("output.cache.values", "two")):
        with pytest.raises(RunError, match=r"`output.cache` is a DynamicCache, an opaque cache object .*attention's projections"):
            record(Answer(torch.ones(2), DynamicCache()), tmp_path / name, values=[path])
    read = record(Answer(torch.ones(2), DynamicCache()), tmp_path / "three", values=["output.cache.keys"])
    assert torch.equal(stored(read, "output.cache.keys"), torch.ones(2))


def test_an_opaque_member_next_to_tensors_is_recorded_in_the_file(tmp_path: Path) -> None:
    read = record(Answer(torch.ones(2), DynamicCache()), tmp_path)
    assert torch.equal(stored(read, "output.logits"), torch.ones(2))
    with h5py.File(tmp_path / "run" / "epoch-0000.h5") as file:
        accounts = json.loads(file["closing"][()])["accounts"]
    assert accounts[0]["opaque"] == {"output.cache": "DynamicCache"}


def test_a_search_for_values_that_are_not_finite_does_not_read_storage_that_was_freed() -> None:
    with pytest.raises(NotCapturable, match="no memory"):
        is_finite(freed(FREED["behind the start"]))


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.float16, torch.bfloat16, torch.float8_e5m2])
def test_a_value_that_is_not_finite_is_found_in_each_dtype_that_can_hold_one(dtype: torch.dtype) -> None:
    assert is_finite(torch.ones(3).to(dtype))
    bad = torch.tensor([1.0, float("nan"), 2.0]).to(dtype)
    assert not is_finite(bad)
    assert {"nan": 1, "index": (1,), "dtype": str(dtype).removeprefix("torch.")}.items() <= numbers(bad).items()
