"""Launches by srun or mpirun are one run, and are replayed with such a command; a stand-in sets what their manuals say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import probes
from probes.errors import UsageError
from probes.proof.replay import replay

pytest.importorskip("torch.distributed.run", reason="this PyTorch is built without distributed")
pytestmark = pytest.mark.torture

STAND_IN = """
import os, subprocess, sys
kind, count, *words = sys.argv[1:]
def environment(rank):
    if kind == "srun":
        found = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": str(os.getpid()), "SLURM_PROCID": rank, "SLURM_NTASKS": count,
                 "SLURM_LOCALID": rank, "SLURM_NODEID": 0, "SLURM_STEP_NUM_TASKS": count, "SLURM_STEP_NODELIST": "localhost"}
    else:
        found = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": count, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
                 "OMPI_COMM_WORLD_LOCAL_SIZE": count, "PMIX_NAMESPACE": f"prterun-localhost-{os.getpid()}@1", "PMIX_RANK": rank}
    return {**os.environ, "STORE": f"store.{os.getpid()}", **{name: str(value) for name, value in found.items()}}
ranks = [subprocess.Popen(words, env=environment(rank)) for rank in range(int(count))]
sys.exit(max([abs(one.wait()) for one in ranks]))
"""
SCRIPT = """
import os
import torch
from torch import distributed, nn

rank = int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or os.environ["OMPI_COMM_WORLD_RANK"])
world = int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or os.environ["OMPI_COMM_WORLD_SIZE"])
if "STORE" in os.environ:
    distributed.init_process_group("gloo", store=distributed.FileStore(os.environ["STORE"], world), rank=rank, world_size=world)
else:
    distributed.init_process_group("gloo")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)
    def forward(self, x):
        return self.a(x)

torch.manual_seed(0)
net = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x in torch.utils.data.DataLoader(torch.arange(24.0).reshape(6, 4) + rank, batch_size=2):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
distributed.destroy_process_group()
"""
SPEC = "version: 1\nprobes: {acts: {modules: [a], values: [output, grad_output]}}\n"
RUN = (sys.executable, "-m", "probes", "run", "--out", "run", "probe.yaml", "train.py")


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    about = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NO_COLOR": "1"}
    return subprocess.run(words, cwd=folder, env=about, text=True, capture_output=True, timeout=240, check=False)


@pytest.mark.parametrize(("kind", "name", "typed"), [("srun", "slurm", "srun --ntasks 2"), ("mpirun", "mpirun", "mpirun -n 2")])
def test_a_launch_is_one_run_and_is_replayed_by_a_command_like_that_of_its_start(tmp_path: Path, kind: str, name: str, typed: str) -> None:
    for file, text in {"launch.py": STAND_IN, "train.py": SCRIPT, "probe.yaml": SPEC}.items():
        (tmp_path / file).write_text(text)
    start = (sys.executable, str(tmp_path / "launch.py"), kind, "2")
    done = called(tmp_path, *start, *RUN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("head of the run") == 1
    run = probes.open(tmp_path / "run")
    assert [(one["launcher"], one["world"]) for one in run.launches] == [(name, 2)]
    assert probes.verify(tmp_path / "run").ok
    again_run = (sys.executable, "-m", "probes", "replay", "run", "--yes", "--out", "again")
    refused = called(tmp_path, *again_run)
    assert refused.returncode == 2
    assert f'--launcher "{typed}"' in refused.stderr
    torchrun = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2 --no-python"
    for launcher in (" ".join(start), torchrun):  # the script takes its rank from the environment of both
        done = called(tmp_path, *again_run, "--launcher", launcher, "--bitwise", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["verdict"] == "same"
        again = probes.open(tmp_path / "again")
        assert [one["world"] for one in again.launches] == [2]
        assert again.captures_roots == run.captures_roots
        subprocess.run(["rm", "-r", str(tmp_path / "again")], check=True)


def test_a_launcher_for_a_run_of_one_process_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nfrom torch import nn\nnet = nn.Sequential(nn.Linear(2, 2))\nnet(torch.ones(1, 2))\n")
    (tmp_path / "probe.yaml").write_text('version: 1\nprobes: {acts: {modules: ["0"], values: [output]}}\n')
    assert called(tmp_path, *RUN).returncode == 0
    with pytest.raises(UsageError, match="the run had one process, so `--launcher` has no effect"):
        replay(tmp_path / "run", tmp_path / "again", directory=tmp_path, launcher=["srun"])
