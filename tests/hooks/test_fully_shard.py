"""FSDP2: fully_shard replaces every parameter by a shard and makes it whole around each call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probes
from probes.errors import PlanError
from tests.old_torch import shards_on_cpu

fsdp = pytest.importorskip("torch.distributed.fsdp", reason="this PyTorch is built without distributed")
if not hasattr(fsdp, "fully_shard"):
    pytest.skip("this PyTorch has no fully_shard", allow_module_level=True)
pytestmark = [pytest.mark.filterwarnings("ignore"), shards_on_cpu]

SPEC: dict[str, Any] = {
    "version": 1,
    "name": "sharded",
    "probes": {
        "acts": {"modules": ["0", "2", ""], "values": ["input", "output", "grad_output"]},
        "sum": {"hook": "tensor", "tensors": ["*.weight"], "stage": "accumulated"},
        "used": {"hook": "tensor", "tensors": ["*.weight"], "stage": "final"},
        "data": {"hook": "tensor", "tensors": ["*.weight"], "values": ["data"]},
    },
}


@pytest.fixture
def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts the rank before every traceback
    torch.distributed.init_process_group("gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def net(mesh: Any = None) -> nn.Module:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    if mesh is not None:
        for part in (model[0], model[2], model):
            fsdp.fully_shard(part, mesh=mesh)
    return model


def train(model: nn.Module, batches: Any) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x in batches:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def batches() -> list[torch.Tensor]:
    return list(torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(1)))


def recorded(model: nn.Module, path: Path) -> tuple[Any, list[float]]:
    with probes.attach(model, SPEC, out=path) as run:
        losses = train(model, run.steps(batches()))
    return probes.open(path), losses


def test_a_sharded_model_has_the_values_and_gradients_of_a_whole_one(tmp_path: Path, mesh: Any) -> None:
    whole, _ = recorded(net(), tmp_path / "whole")
    sharded, losses = recorded(net(mesh), tmp_path / "sharded")
    assert losses == train(net(mesh), batches())
    assert [str(series.key) for series in sharded.series] == [str(series.key) for series in whole.series]
    for one, other in zip(sharded.series, whole.series, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.torch(), other.torch(), strict=True)), one.key


@pytest.mark.parametrize("part", ["root", "child"])
def test_the_increment_of_a_gradient_of_a_shard_is_refused_with_a_replacement(tmp_path: Path, mesh: Any, part: str) -> None:
    model = net()
    fsdp.fully_shard(model if part == "root" else model[0], mesh=mesh)
    spec = {"version": 1, "probes": {"w": {"hook": "tensor", "tensors": ["0.weight"], "stage": "increment"}}}
    with pytest.raises(PlanError, match=r"(?s)`0\.weight` is sharded by `fully_shard`.*`stage: accumulated`"):
        probes.attach(model, spec, out=tmp_path / "run")
