"""Memory over very many captures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

import probes

PAGE = os.sysconf("SC_PAGE_SIZE")
SPEC = {"version": 1, "name": "r", "probes": {"p": {"modules": ["**"], "values": ["output"]}}}


def resident(pid: int | str = "self") -> int:
    """Bytes of a process that are in memory and its own."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * PAGE


def take(out: Path, epochs: int, steps: int) -> tuple[list[int], list[int]]:
    """Resident memory of this process and of the sealer after every epoch of `steps` x 100 captures."""
    model = nn.Sequential(*(nn.Identity() for _ in range(100)))
    ours, sealers = [], []
    x = torch.ones(4)
    with torch.no_grad(), probes.attach(model, SPEC, out=out) as run:
        for _ in run.epochs(epochs):
            with run.phase("train"):
                for _ in range(steps):
                    with run.step():
                        model(x)
            child = run.recording.sealer._child
            ours.append(resident())
            sealers.append(resident(child.pid) if child is not None else 0)
    return ours, sealers


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell what is resident")
@pytest.mark.parametrize(
    ("epochs", "steps"),
    [pytest.param(20, 50, id="1e5"), pytest.param(100, 1000, id="1e7", marks=pytest.mark.torture)],
)
def test_memory_is_flat_over_many_captures_in_both_processes(tmp_path: Path, epochs: int, steps: int) -> None:
    ours, sealers = take(tmp_path / "r", epochs, steps)
    settled = epochs // 4
    assert max(ours[settled:]) - ours[settled] < 24 << 20
    assert max(sealers[settled:]) - max(sealers[:settled]) < 24 << 20
    assert len(probes.open(tmp_path / "r").epochs) == epochs
