"""A DTensor is stored as this rank's shard, with what places it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest
import torch
from torch import Tensor, nn

import probes

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
