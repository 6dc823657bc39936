"""torchrun --max-restarts: a rank is killed, and the restarted launch has the same captures as one that was never killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import probes

pytest.importorskip("torch.distributed.run", reason="this PyTorch is built without distributed")
pytestmark = pytest.mark.torture

SCRIPT = """
import os, signal, time
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
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    data = TensorDataset(torch.randn(16, 4))
    sampler = DistributedSampler(data, shuffle=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = 0
    if os.path.exists("checkpoint.pt"):
        saved = torch.load("checkpoint.pt")
        model.load_state_dict(saved["model"])
        first = saved["epoch"]
    for epoch in range(first, 3):
        sampler.set_epoch(epoch)
        for step, (x,) in enumerate(DataLoader(data, batch_size=2, sampler=sampler)):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ.get("KILL") == f"{epoch}.{step}.{rank}":
                os.kill(os.getpid(), signal.SIGKILL)
            if os.environ.get("WAIT") == f"{epoch}.{step}":
                open(f"waits.{rank}", "w").close()
                time.sleep(600)
        distributed.barrier()
        if rank == 0:
            torch.save({"model": model.state_dict(), "epoch": epoch + 1}, "checkpoint.part")
            os.replace("checkpoint.part", "checkpoint.pt")
        distributed.barrier()
    distributed.destroy_process_group()
"""
# The agent of torchrun keeps one store for all starts, and gloo finds the addresses of killed ranks in it (torch 2.13:
# dynamic_rendezvous.py makes `_shared_tcp_store_server` once): a rank that comes before the other has written its new address is
# refused, or waits for ever.
FRESH_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

SPEC = """
version: 1
probes:
  acts: {modules: [a], values: [output, grad_output]}
  used: {hook: tensor, tensors: [a.weight], stage: final}
"""


def launched(folder: Path, kill: str = "") -> str:
    """The command that starts, restarts and resumes; what it said."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "probe.yaml").write_text(SPEC)
    about = {**os.environ, **FRESH_STORE, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NO_COLOR": "1", "KILL": kill}
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2", "-m", "probes", "run")
    command = [sys.executable, *words, "--out", "run", "probe.yaml", "train.py"]
    done = subprocess.run(
        command, cwd=folder, env=about, text=True, timeout=240, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_launch_that_was_killed_has_the_captures_of_one_that_was_not(tmp_path: Path) -> None:
    whole = launched(tmp_path / "whole")
    for number, kill in enumerate(("0.0.0", "1.2.1", "2.3.0", "1.0.0")):
        said = launched(tmp_path / str(number), kill)
        run = tmp_path / str(number) / "run"
        assert probes.open(run).state == dict.fromkeys(range(3), "complete"), kill
        assert len(probes.open(run).launches) > 1, kill
        assert probes.diff(tmp_path / "whole" / "run", run, bitwise=True).same, kill
        verdict = probes.verify(run, anchor=said.partition("head of the run ")[2][:64])
        assert verdict.ok, verdict.findings
        assert said.count("head of the run ") == whole.count("head of the run ") == 1
