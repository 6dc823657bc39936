"""torchrun of a script that knows nothing of probes: DistributedDataParallel in two processes, each with files of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import probes

pytest.importorskip("torch.distributed.run", reason="this PyTorch is built without distributed")

SCRIPT = """
import sys
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 2)
    def forward(self, x):
        return self.b(torch.relu(self.a(x)))

if __name__ == "__main__":
    assert sys.argv[1:] == ["--weights"], sys.argv
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    data = TensorDataset(torch.randn(12, 4))
    sampler = DistributedSampler(data, shuffle=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, in DataLoader(data, batch_size=2, sampler=sampler):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    torch.save(model.module.state_dict(), f"{sys.argv[0]}.{distributed.get_rank()}.pt")
    distributed.destroy_process_group()
"""
SPEC = """
version: 1
probes:
  acts: {modules: [a], values: [output, grad_output]}
  part: {hook: tensor, tensors: [a.weight], stage: increment}
  used: {hook: tensor, tensors: [a.weight], stage: final}
"""
WORDS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def launched(folder: Path, *words: str) -> str:
    """What a command said that torchrun ran in two processes; it has to end well."""
    about = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NO_COLOR": "1"}
    command = [sys.executable, *WORDS, *words]
    done = subprocess.run(command, cwd=folder, env=about, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def weights(folder: Path) -> list[dict[str, torch.Tensor]]:
    return [torch.load(path, weights_only=True) for path in sorted(folder.glob("*.pt"))]


def by_rank(series: Any) -> list[list[torch.Tensor]]:
    return [list(series.sel(rank=rank).torch()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a run on two ranks, in `runs/a`."""
    folder = tmp_path_factory.mktemp("launch")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "probe.yaml").write_text(SPEC)
    (folder / "said.txt").write_text(launched(folder, "-m", "probes", "run", "--out", "runs/a", "probe.yaml", "train.py", "--weights"))
    return folder


def test_every_rank_has_separate_files_that_verify(folder: Path) -> None:
    names = sorted(path.name for path in (folder / "runs/a").glob("*.h5"))
    assert names == [f"epoch-000{epoch}.rank-000{rank}.h5" for epoch in (0, 1) for rank in (0, 1)]
    assert probes.verify(folder / "runs/a").ok
    assert probes.diff(folder / "runs/a", folder / "runs/a").same


def test_gradients_of_a_rank_are_its_own_until_the_optimizer_takes_their_mean(folder: Path) -> None:
    run = probes.open(folder / "runs/a")
    parts, used = by_rank(run["part", "a.weight"]), by_rank(run["used", "a.weight"])
    assert [len(tensors) for tensors in (*parts, *used)] == [6, 6, 6, 6]
    for one, other, mean, same in zip(*parts, *used, strict=True):
        assert not torch.equal(one, other)
        assert torch.equal(mean, same)
        assert torch.equal((one + other) / 2, mean), "halves are exact"


def test_steps_and_epochs_are_those_of_each_rank(folder: Path) -> None:
    output = probes.open(folder / "runs/a")["acts", "a", "output"]
    for rank in (0, 1):
        clocks = output.sel(rank=rank).clocks
        assert list(zip(clocks["epoch"].tolist(), clocks["step"].tolist(), strict=True)) == [(e, s) for e in (0, 1) for s in range(3)]


def test_each_line_states_its_rank(folder: Path) -> None:
    said = (folder / "said.txt").read_text()
    for rank in (0, 1):
        assert f"rank {rank}  probes" in said, said
        assert f"rank {rank}  epoch 1  train 3 steps  12 captures" in said, said
    assert said.count("bound to Net") == 1


def test_the_weights_are_those_of_a_launch_without_probes(folder: Path) -> None:
    probed = weights(folder)
    launched(folder, "train.py", "--weights")
    for one, other in zip(probed, weights(folder), strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
