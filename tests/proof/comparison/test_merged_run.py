"""Runs of one process and of several, and of several layouts, compared as one process would have captured them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import probes
from tests.warm import programs

pytest.importorskip("torch.distributed.fsdp", reason="this PyTorch is built without distributed")

PROGRAM = """
import os, sys, warnings
warnings.filterwarnings("ignore")
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
import probes

kind, out, store = sys.argv[1:]
world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 5)).double()
if kind != "one":
    distributed.init_process_group("gloo", store=distributed.FileStore(store, world), rank=rank, world_size=world)
if kind == "ddp":
    model = DistributedDataParallel(model)
if kind == "fsdp":
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=init_device_mesh("cpu", (world,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
values = {} if kind == "fsdp" else {"mine": {"hook": "tensor", "tensors": ["0.weight"], "stage": "increment"}}
spec = {"version": 1, "name": "s", "probes": {
    "w": {"hook": "tensor", "tensors": ["**"], "values": ["data"]},
    "g": {"hook": "tensor", "tensors": ["**"], "stage": "final"},
    "a": {"modules": ["0", "2"], "values": ["output", "grad_output"]},
    "norms": {"hook": "tensor", "tensors": ["**"], "values": ["data"], "transforms": [{"kind": "norm"}]},
    "stats": {"modules": ["0", "2"], "values": ["output"], "transforms": [{"kind": "abs"}, {"kind": "stats"}]},
    "sizes": {"modules": ["0", "2"], "values": ["grad_output"], "transforms": [{"kind": "norm"}]},
    "means": {"modules": ["0", "2"], "values": ["output"], "dims": ["b", "f"], "transforms": [{"kind": "accumulate", "dims": ["b"]}]},
    "spread": {"modules": ["2"], "values": ["output"], "transforms": [{"kind": "accumulate", "what": "covariance", "dims": [0]}]},
    **values,
}}
batches = [torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(step)) for step in range(3)]
with probes.attach(model, spec, out=out) as run:
    for x in run.steps([batch.chunk(world)[rank] for batch in batches]):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
if kind != "one":
    distributed.destroy_process_group()
"""


def trained(folder: Path, kind: str, world: int) -> Path:
    """Train on the same batches in some number of processes."""
    out = folder / f"{kind}-{world}"
    about = {**os.environ, "WORLD_SIZE": str(world), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    if world > 1:
        about["TORCHELASTIC_RUN_ID"] = "job"
    with ThreadPoolExecutor(world) as pool:
        words = (kind, out, folder / f"store-{kind}-{world}")
        ranks = [pool.submit(programs.run, "-c", PROGRAM, *words, env={**about, "RANK": str(rank)}) for rank in range(world)]
        for rank in ranks:
            assert rank.result().returncode == 0, rank.result().stderr
    return out


def wrong(a: Path, b: Path, **options: Any) -> list[tuple[str, int, int, int, int]]:
    """Every series that is not the same: what differs, is missing, is extra, cannot be compared."""
    found = probes.diff(a, b, rtol=1e-9, atol=1e-12, **options)
    rows = [(str(one.key), one.different, one.missing, one.extra, one.incomparable) for one in found.series]
    assert found.same == (not any(sum(row[1:]) for row in rows))
    return [row for row in rows if sum(row[1:])]


@pytest.mark.torture
def test_one_process_and_two_ranks_captured_the_same(tmp_path: Path) -> None:
    one, ddp = trained(tmp_path, "one", 1), trained(tmp_path, "ddp", 2)
    assert wrong(one, ddp, concat="batch") == []
    without = {name.split("/")[0] for name, *_ in wrong(one, ddp)}
    assert without == {"a", "stats", "sizes", "means", "spread"}, "activations of ranks are joined only where that is requested"


@pytest.mark.torture
def test_every_layout_captured_the_same(tmp_path: Path) -> None:
    one = trained(tmp_path, "one", 1)
    runs = [trained(tmp_path, kind, world) for kind in ("ddp", "fsdp") for world in (2, 4)]
    for run in runs:
        lacking = {"mine/0.weight:grad"} if "fsdp" in run.name else set()
        assert {row[0] for row in wrong(one, run, concat="batch")} == lacking, run
    assert {row[0] for row in wrong(runs[0], runs[1], concat="batch")} == set()
    assert {row[0] for row in wrong(runs[2], runs[3], concat="batch")} == set()
