"""The record of the data that a program iterates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)  # fmt: skip

import probes
from probes.provenance.loaders import LARGEST_DATA, SeenLoaders

SPEC = {"version": 1, "probes": {"acts": {"modules": [""], "values": ["output"]}}}


class Fingerprinted(Dataset[Tensor]):
    """As Hugging Face `datasets` has it: a text that follows every transformation, and data on the disk."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    @property
    def table(self) -> Tensor:
        raise AssertionError("a property is the program's, and may read the disk")

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(2)


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        yield torch.zeros(2)


class Odd(Dataset[Tensor]):
    """Members that have no bytes, or that are not what they look like."""

    def __init__(self) -> None:
        self.members = [1, "x", None]
        self.mixed = [1, "x", 2]
        self.huge = [10**30, 1]
        self.empty = torch.empty(0)
        self.meta = torch.empty(3, device="meta")
        self.sparse = torch.eye(2).to_sparse()
        self.texts = np.array(["a"])
        self.itself = self

    def __getitem__(self, index: int) -> Tensor:
        raise AssertionError("nothing is requested a sample")


def seen(*loaders: Any) -> list[dict[str, Any]]:
    found = SeenLoaders()
    for loader in loaders:
        found.see(loader)
    return [*json.loads(json.dumps(found.records)).values()]


def dataset(of: Any) -> dict[str, Any]:
    found: dict[str, Any] = seen(DataLoader(of))[0]["dataset"]
    return found


def test_a_fingerprint_is_used_unchanged_within_other_data_sets_too() -> None:
    inner = {"class": f"{__name__}.Fingerprinted", "fingerprint": "0f3a"}
    assert dataset(Fingerprinted("0f3a")) == inner
    assert dataset(ConcatDataset([Fingerprinted("0f3a"), Fingerprinted("77")]))["of"] == [inner, inner | {"fingerprint": "77"}]
    assert dataset(Subset(Fingerprinted("0f3a"), [1]))["of"] == [inner]


def test_one_changed_number_or_another_order_changes_the_digest_of_a_data_set_in_memory() -> None:
    data = torch.arange(6.0).reshape(3, 2)
    one = dataset(TensorDataset(data))["content"]
    other = data.clone()
    other[2, 1] += 1
    assert one == dataset(TensorDataset(data.clone()))["content"]
    assert one != dataset(TensorDataset(other))["content"]
    assert one != dataset(TensorDataset(data.reshape(2, 3)))["content"]
    assert one != dataset(TensorDataset(data.double()))["content"]
    subsets = [dataset(Subset(TensorDataset(data), order))["content"] for order in ([0, 1], [1, 0])]
    assert subsets[0] != subsets[1]


def test_data_that_is_too_large_is_not_hashed_and_recorded_as_such() -> None:
    found = dataset(TensorDataset(torch.empty(LARGEST_DATA // 4 + 1)))
    assert found["not_hashed"].startswith(f"{LARGEST_DATA + 4} bytes")


def test_settings_and_seeds_of_samplers_are_recorded() -> None:
    data = TensorDataset(torch.zeros(4))
    generator = torch.Generator()
    generator.manual_seed(7)
    state = generator.get_state()
    (shuffled,) = seen(DataLoader(data, batch_size=2, shuffle=True, generator=generator))
    assert (shuffled["seed"], shuffled["sampler"]["seed"], shuffled["batch_size"]) == (7, 7, 2)
    assert torch.equal(generator.get_state(), state)
    (spread,) = seen(DataLoader(data, sampler=DistributedSampler(data, 2, 1, seed=3)))
    assert {name: spread["sampler"][name] for name in ("num_replicas", "rank", "seed", "shuffle")} == {
        "num_replicas": 2,
        "rank": 1,
        "seed": 3,
        "shuffle": True,
    }
    weighted = [seen(DataLoader(data, sampler=WeightedRandomSampler([w, 1.0, 1.0, 1.0], 2)))[0] for w in (1.0, 2.0)]
    assert weighted[0]["sampler"] != weighted[1]["sampler"]
    (own,) = seen(DataLoader(data, batch_sampler=Pairs(RandomSampler(data, generator=generator), 2, False)))
    assert own["sampler"]["of"]["seed"] == 7


class Pairs(BatchSampler):
    """A batch sampler of the program's own."""


@pytest.mark.parametrize("of", [Stream(), Odd(), [torch.zeros(2)], range(3)])
def test_an_object_without_an_identity_is_named_by_its_class(of: Any) -> None:
    found = dataset(of)
    assert found["class"].endswith(type(of).__name__)
    assert "none" not in str(found) or isinstance(of, Odd)


def test_a_data_set_that_holds_itself_many_times_is_described() -> None:
    data = ConcatDataset([TensorDataset(torch.zeros(4)) for _ in range(99)])
    data.datasets += [data] * 9
    found = dataset(data)
    assert (len(found["of"]), found["further"]) == (64, 44)


class Unreadable(Dataset[Tensor]):
    """Its attributes have names that are no text."""

    def __init__(self) -> None:
        self.held = torch.ones(2)
        vars(self)[3] = torch.ones(2)  # type: ignore[index]  # a key that Python allows here

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Tensor:
        return torch.ones(2)


def test_a_data_set_that_cannot_be_described_is_recorded_as_such_and_training_continues() -> None:
    seen = SeenLoaders()
    seen.see(DataLoader(Unreadable()))
    (found,) = seen.records.values()
    assert found["not_described"] == "TypeError"


def test_loaders_are_described_once_and_as_many_as_are_kept() -> None:
    data = TensorDataset(torch.zeros(4))
    assert len(seen(*(DataLoader(data) for _ in range(9)))) == 1
    assert len(seen(*(DataLoader(data, batch_size=size + 1) for size in range(99)))) == 64


def trained(out: Path, data: Tensor) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    with probes.attach(model, SPEC, out=out) as run:
        for _ in run.epochs(1):
            for (batch,) in run.steps(DataLoader(TensorDataset(data))):
                model(batch)


def test_an_epoch_that_ends_with_the_run_records_its_data_too(tmp_path: Path) -> None:
    """The loop uses nothing of the run, as under `probes run`: its last epoch is closed when the program has ended."""
    for out, data in (("a", torch.zeros(2, 2)), ("b", torch.ones(2, 2))):
        model = nn.Linear(2, 2)
        with probes.attach(model, SPEC, out=tmp_path / out, automatic=True):
            loader = DataLoader(TensorDataset(data))
            for _ in range(2):
                for (batch,) in loader:
                    model(batch)
    assert [probes.open(tmp_path / "a").epochs] == [[0, 1]]
    for epoch in (0, 1):
        with h5py.File(tmp_path / "a" / f"epoch-000{epoch}.h5") as file:
            assert len(json.loads(file["closing"][()])["loaders"]) == 1
    assert "loaders.0.dataset.content.tensors.0" in [one.place for one in probes.diff(tmp_path / "a", tmp_path / "b").origins]


def test_a_run_records_its_data_and_diff_compares_it(tmp_path: Path) -> None:
    trained(tmp_path / "a", torch.zeros(2, 2))
    trained(tmp_path / "b", torch.ones(2, 2))
    with h5py.File(tmp_path / "a" / "epoch-0000.h5") as file:
        (loader,) = json.loads(file["closing"][()])["loaders"]
    assert [*loader["dataset"]["content"]] == ["tensors.0"]
    assert "loaders.0.dataset.content.tensors.0" in [one.place for one in probes.diff(tmp_path / "a", tmp_path / "b").origins]
    assert probes.verify(tmp_path / "a").ok


def test_an_epoch_that_ends_with_the_run_records_its_data(tmp_path: Path) -> None:
    for name, size in (("a", 1), ("b", 2)):
        model = nn.Linear(2, 2)
        with probes.attach(model, SPEC, out=tmp_path / name):
            for (batch,) in DataLoader(TensorDataset(torch.zeros(4, 2)), batch_size=size):
                model(batch)
    assert "loaders.0.batch_size" in [one.place for one in probes.diff(tmp_path / "a", tmp_path / "b").origins]


def test_a_run_does_not_record_the_data_of_an_earlier_run_of_the_process(tmp_path: Path) -> None:
    trained(tmp_path / "a", torch.zeros(2, 2))
    model = nn.Linear(2, 2)
    with probes.attach(model, SPEC, out=tmp_path / "b"):
        model(torch.zeros(1, 2))
    with h5py.File(tmp_path / "b" / "epoch-0000.h5") as file:
        assert json.loads(file["closing"][()])["loaders"] == []
