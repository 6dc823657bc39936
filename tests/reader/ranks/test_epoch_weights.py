"""Weights at the ends of epochs: the same digest for one process and for ranks in any layout, if the weights are the same."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import probes
from tests.warm import programs

pytest.importorskip("torch.distributed.tensor.parallel", reason="this PyTorch is built without distributed")

# Weights, data and rates are small multiples of powers of two, so no sum of the training is rounded and every layout has the same bits.
PROGRAM = """
import os, sys, warnings
warnings.filterwarnings("ignore")
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
import probes

kind, out, store, odd, flip = sys.argv[1:]
world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5))
for number, one in enumerate(model.parameters()):
    one.data = (torch.arange(one.numel()) * 7 % 5 - 2 + number).reshape(one.shape).float()
captured = model
if kind != "one":
    distributed.init_process_group("gloo", store=distributed.FileStore(store, world), rank=rank, world_size=world)
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    if kind == "ddp":
        captured = nn.parallel.DistributedDataParallel(model)
    elif kind == "tp":
        parallelize_module(model, init_device_mesh("cpu", (world,)), plan)
    elif kind == "fsdp":
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=init_device_mesh("cpu", (world,)))
    else:
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], plan)
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=mesh["dp"])
optimizer = torch.optim.SGD(model.parameters(), lr=2.0 ** -6)
spec = {"version": 1, "name": "s", "provenance": {"weights": "epochs"}, "probes": {"o": {"modules": ["2"], "values": ["output"]}}}
with probes.attach(captured, spec, out=out) as run:
    for epoch in run.epochs(3):
        for x in run.steps([torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]])] * 2):
            optimizer.zero_grad()
            captured(x).sum().backward()
            optimizer.step()
        if epoch == 1 and rank == int(odd):
            part = model[2].weight
            (part.to_local() if hasattr(part, "to_local") else part).data[-1, -1] += float(flip)
if kind != "one":
    distributed.destroy_process_group()
"""


def trained(folder: Path, name: str, kind: str, world: int = 1, odd: int = -1, flip: float = 0.0) -> Path:
    """A training of three epochs; on the rank `odd` a number is added to one weight within epoch 1."""
    about = {"TORCHELASTIC_RUN_ID": "job", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    out = folder / name
    words = ("-c", PROGRAM, kind, out, folder / f"{name}.store", odd, flip)
    with ThreadPoolExecutor(world) as pool:
        env = [{**os.environ, **({**about, "WORLD_SIZE": str(world), "RANK": str(rank)} if kind != "one" else {})} for rank in range(world)]
        for done in pool.map(lambda one: programs.run(*map(str, words), env=one), env):
            assert done.returncode == 0, done.stderr
    return out


LAYOUTS = [("ddp", 2), ("fsdp", 2), *(pytest.param(*one, marks=pytest.mark.torture) for one in (("tp", 2), ("fsdp", 4), ("both", 4)))]


@pytest.mark.parametrize(("kind", "world"), LAYOUTS)
def test_weights_of_every_epoch_are_those_of_one_process_in_every_layout(tmp_path: Path, kind: str, world: int) -> None:
    one, many = trained(tmp_path, "one", "one"), trained(tmp_path, "many", kind, world)
    found = probes.open(one).epoch_weights
    assert list(found) == [0, 1, 2]
    assert None not in found.values()
    assert len({*found.values(), probes.open(one).weights}) == 4, "each epoch changes the weights"
    assert probes.open(many).epoch_weights == found
    verdict = probes.verify(many)
    assert verdict.ok, verdict.findings
    assert verdict.epoch_weights == found
    assert json.loads(json.dumps(verdict.as_dict()))["epoch_weights"] == {str(epoch): digest for epoch, digest in found.items()}
    assert probes.diff(one, many).weights == ()


def test_diff_names_the_first_epoch_and_the_tensor_that_differ(tmp_path: Path) -> None:
    runs = {
        "one": trained(tmp_path, "one", "one"),
        "odd": trained(tmp_path, "odd", "one", odd=0, flip=0.5),
        "fsdp": trained(tmp_path, "fsdp", "fsdp", 2),
        "odd fsdp": trained(tmp_path, "odd-fsdp", "fsdp", 2, odd=1, flip=0.5),
    }

    def places(a: str, b: str) -> list[tuple[Any, ...]]:
        return [(one.epoch, one.tensor, one.rank) for one in probes.diff(runs[a], runs[b]).weights]

    assert places("one", "odd") == [(1, "2.weight", None)]
    assert places("fsdp", "odd fsdp") == [(1, "2.weight", 1)], "the same layout: rank by rank"
    assert places("one", "odd fsdp") == places("odd", "fsdp") == [(1, "2.weight", None)]
    assert places("one", "one") == []


def test_weights_that_differ_after_the_last_capture_make_runs_different_except_within_a_tolerance(tmp_path: Path) -> None:
    one, other = trained(tmp_path, "one", "one"), trained(tmp_path, "other", "one", odd=0, flip=0.5)
    for run in (one, other):  # two epochs whose captures are the same, and whose weights differ only after the last step
        for path in [*run.glob("epoch-0002.h5")]:
            path.unlink()
        lines = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)
        (run / "ledger.jsonl").write_bytes(b"".join(lines[:2]))
    found = probes.diff(one, other)
    assert found.counts["different"] == 0
    assert (found.verdict, found.as_dict()["weights"][0]["tensor"]) == ("different", "2.weight")
    assert probes.diff(one, other, rtol=1.0).verdict == "same"


def test_replicas_whose_weights_differ_at_the_end_of_an_epoch_are_found_without_a_probe_of_them(tmp_path: Path) -> None:
    run = trained(tmp_path, "run", "ddp", 2, odd=1, flip=0.5)
    assert [*probes.open(run).epoch_weights.values()][1:] == [None, None]
    assert probes.verify(run).ok, "the bytes are those that were sealed"
    (found,) = [one for one in probes.verify(run, replicas=True).findings if not one.note]
    assert (found.code, found.file) == ("replicas-differ", "epoch-0001.rank-0000.h5")
    assert "parameter `2.weight` on rank 1 differs from rank 0 at the end of epoch 1" in found.message
    equal = trained(tmp_path, "equal", "ddp", 2)
    assert probes.verify(equal, replicas=True).ok


def test_one_file_copied_out_of_a_run_states_its_weights(tmp_path: Path) -> None:
    run = trained(tmp_path, "run", "one")
    shutil.copy(run / "epoch-0001.h5", tmp_path / "alone.h5")
    assert probes.open(tmp_path / "alone.h5").epoch_weights == {1: probes.open(run).epoch_weights[1]}
