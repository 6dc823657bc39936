"""A DTensor is stored as this rank's shard, with what places it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import probes
from probes.capture_file.read import SealedFile
from probes.capture_file.series_part import attrs_of
from probes.errors import FileRefused, RunError
from tests.independent_verifier import check_run, verifies

distributed = pytest.importorskip("torch.distributed.tensor", reason="this PyTorch is built without distributed")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    # torch puts the rank before every traceback from now on, and leaves it so.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    torch.distributed.init_process_group("gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()
    assert "RANK" not in os.environ


def test_a_dtensor_is_stored_as_its_local_shard_with_its_placements(tmp_path: Path, mesh: object) -> None:
    class Sharding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return distributed.distribute_tensor(x, mesh, [distributed.Shard(0)])  # type: ignore[no-any-return]  # torch leaves it untyped

    model = nn.Sequential(Sharding())
    x = torch.arange(6.0).reshape(2, 3)
    with probes.attach(model, {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"]}}}, out=tmp_path / "run") as run:
        for batch in run.steps([x]):
            model(batch)
    assert torch.equal(probes.open(tmp_path / "run")["p", "0"].torch()[0], x)
    with h5py.File(next((tmp_path / "run").glob("*.h5"))) as file:
        group = file["captures/p"]
        attributes = dict(next(iter(group.values())).attrs)
    assert "0" in str(attributes["placements"])
    assert list(attributes["global_shape"]) == [2, 3]


class Turns(nn.Module):
    """Gives its input in the next of some shapes of distribution at each call; None is a plain tensor."""

    def __init__(self, mesh: object, *placements: object) -> None:
        super().__init__()
        self.mesh, self.placements, self.calls = mesh, placements, 0

    def forward(self, x: Tensor) -> Tensor:
        placement = self.placements[self.calls % len(self.placements)]
        self.calls += 1
        return x if placement is None else distributed.distribute_tensor(x, self.mesh, [placement])  # type: ignore[no-any-return]  # torch leaves it untyped


def turned(out: Path, model: nn.Module, probe: dict[str, object]) -> probes.Series:
    """Four steps of a model whose output changes its sharding."""
    spec = {"version": 1, "probes": {"p": {"modules": [""], "values": ["output"], **probe}}}
    with probes.attach(model, spec, out=out) as run:
        for step, x in enumerate(run.steps([torch.arange(6.0).reshape(2, 3) + step for step in range(4)])):
            assert step < 4
            model(x)
    return probes.open(out)["p", ""]


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("more", [{}, {"where": {"of": {"kind": "norm"}, "above": -1}}, {"transforms": [{"kind": "norm"}]}])
def test_a_sharding_that_changes_is_stated_for_each_capture(tmp_path: Path, mesh: object, first: int, more: dict[str, object]) -> None:
    kinds = [distributed.Shard(0), None, distributed.Replicate(), distributed.Shard(1)]
    kinds = kinds[first:] + kinds[:first]
    series = turned(tmp_path / "run", Turns(mesh, *kinds), more)
    assert not {"sharding", "transforms_of"} & {*series.attrs}, "what not all captures share"
    wanted = [{distributed.Shard(0): "S(0)", distributed.Shard(1): "S(1)", None: None}.get(kind, "R") for kind in kinds]
    files = [SealedFile(path) for path in (tmp_path / "run").glob("*.h5")]
    (part,) = [file.part(address) for file in files for address in file.addresses]
    stated = [attrs_of(part, index) for index in range(4)]
    assert [one["placements"][0] if "placements" in one else None for one in stated] == wanted
    assert [("transforms_of" in one) for one in stated] == [("transforms" in more and kind is not None) for kind in wanted]
    whole = torch.stack([torch.arange(6.0).reshape(2, 3) + step for step in range(4)])
    assert np.allclose(series.full(), torch.linalg.vector_norm(whole, dim=(1, 2)).numpy() if "transforms" in more else whole.numpy())
    assert probes.verify(tmp_path / "run").ok
    check_run(tmp_path / "run")


def test_a_variant_that_the_file_does_not_have_is_refused(tmp_path: Path, mesh: object) -> None:
    turned(tmp_path / "run", Turns(mesh, distributed.Shard(0), None), {})
    (path,) = (tmp_path / "run").glob("*.h5")
    with h5py.File(path) as file:
        place = next(iter(file["captures/p"].values()))["variant"].id.get_offset()
    with path.open("r+b") as raw:
        raw.seek(place)
        raw.write(b"\x09")
    assert {finding.code for finding in probes.verify(tmp_path / "run").findings} >= {"damaged"}
    assert not verifies(tmp_path / "run")
    with pytest.raises(FileRefused, match="a capture of variant 9, and 2 variants"):
        probes.open(tmp_path / "run")["p", ""].full()


@pytest.mark.parametrize("transforms", [[{"kind": "accumulate"}], [{"kind": "difference"}]])
def test_merged_or_compared_values_have_one_sharding(tmp_path: Path, mesh: object, transforms: list[dict[str, object]]) -> None:
    against = {"against": {"step": "previous"}} if transforms[0]["kind"] == "difference" else {}
    model = Turns(mesh, distributed.Shard(0), distributed.Shard(1))
    with pytest.raises(RunError, match=r"2 times.* \(parts of tensors that are sharded in two ways \(`S\(0\)` and `S\(1\)`\) cannot"):
        turned(tmp_path / "run", model, {"transforms": transforms, **against})
    assert len(probes.open(tmp_path / "run")["p", ""]) == 1


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of elements of each tensor that was put together by a collective."""
    found: list[int] = []
    original = distributed.DTensor.full_tensor

    def full_tensor(tensor: Any) -> Tensor:
        found.append(tensor.numel())
        return original(tensor)  # type: ignore[no-any-return]  # torch leaves it untyped

    monkeypatch.setattr(distributed.DTensor, "full_tensor", full_tensor)
    return found


def trained(out: Path, mesh: object, **spec: object) -> probes.Run:
    """Six steps of a model whose first module gives a DTensor, and whose second gives a larger number at each step."""

    class Sum(nn.Module):
        def forward(self, x: Any) -> Tensor:
            return x.to_local().sum()  # type: ignore[no-any-return]  # torch leaves it untyped

    model = nn.Sequential(Turns(mesh, distributed.Shard(0)), Sum())
    with probes.attach(model, {"version": 1, **spec}, out=out) as run:
        for _ in run.epochs(2):
            for x in run.steps([torch.full((2, 3), float(step)) for step in range(3)]):
                model(x)
    return run


GATHER = {"modules": ["0"], "values": ["output"], "gather": "full"}


def test_a_rank_that_captures_nothing_more_takes_part_in_the_collectives_of_the_others(
    tmp_path: Path, mesh: object, gathered: list[int]
) -> None:
    trained(tmp_path / "run", mesh, probes={"p": GATHER}, limits={"bytes_per_epoch": 48})
    assert gathered == [6] * 6, "the other ranks may reach their limits later, or never"
    assert [(one.clock.epoch, one.clock.step) for one in probes.open(tmp_path / "run")["p", "0"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_all_ranks_take_part_in_a_collective_whatever_number_another_series_has(tmp_path: Path, mesh: object, gathered: list[int]) -> None:
    number = {"modules": ["1"], "values": ["output"]}
    where = {"series": "number", "above": 7}  # a local number: other ranks have other ones
    trained(tmp_path / "run", mesh, probes={"p": {**GATHER, "where": where}, "number": number})
    assert gathered == [6] * 6
    found = [*probes.open(tmp_path / "run")["p", "0"]]
    assert [(one.clock.epoch, one.clock.step) for one in found] == [(0, 2), (1, 2)]
    assert all((one.value == 2).all() for one in found)
    with h5py.File(next((tmp_path / "run").glob("*.h5"))) as file:
        assert dict(next(iter(file["captures/p"].values())).attrs)["gathered"] == b"full"


def test_a_trigger_compares_the_local_part_of_a_dtensor_without_a_collective(tmp_path: Path, mesh: object, gathered: list[int]) -> None:
    when = {"trigger": {"kind": "threshold", "of": {"kind": "norm"}, "above": 2}}
    trained(tmp_path / "run", mesh, probes={"p": {"modules": ["0"], "values": ["output"], "when": when}})
    assert gathered == []
    assert [(one.clock.epoch, one.clock.step) for one in probes.open(tmp_path / "run")["p", "0"]] == [(0, 1), (1, 1)]


@pytest.mark.parametrize("kind", ["trigger", "where", "condition of another probe"])
def test_a_tensor_is_put_together_once_for_a_condition_and_the_capture(
    tmp_path: Path, mesh: object, gathered: list[int], kind: str
) -> None:
    above = {"of": {"kind": "norm"}, "above": 3}  # the norm of all elements, from step 2 on
    more = {"trigger": {"when": {"trigger": {"kind": "threshold", **above}}}, "where": {"where": above}}
    number = {"modules": ["1"], "values": ["output"], "where": {"series": "p", **above}}
    trained(tmp_path / "run", mesh, probes={"p": {**GATHER, **more.get(kind, {})}, **({} if kind in more else {"q": number})})
    assert gathered == [6] * 6
    series = probes.open(tmp_path / "run")["p", "0"] if kind in more else probes.open(tmp_path / "run")["q", "1"]
    assert [(one.clock.epoch, one.clock.step) for one in series] == [(0, 2), (1, 2)]
    assert not series.attrs.get("gathered") or kind in more
