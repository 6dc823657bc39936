"""Forked children of a process with probes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import probes

SPEC = {"version": 1, "name": "r", "probes": {"p": {"modules": ["0"], "values": ["output", "grad_output"]}}}


class Encoded(Dataset[Tensor]):
    """Calls the probed model in the worker that makes the batch."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Tensor:
        with torch.no_grad():
            return self.model[0](torch.full((4,), float(index))) * 0 + self.model(torch.ones(4)).sum()  # type: ignore[index]


def train(out: Path, workers: int) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    loader = DataLoader(Encoded(model), batch_size=4, num_workers=workers, multiprocessing_context="fork" if workers else None)
    with probes.attach(model, SPEC, out=out) as run:
        for _ in run.epochs(2):
            for x in run.steps(loader):
                model(x.detach()).sum().backward()
    return run


def test_workers_of_a_loader_write_nothing(tmp_path: Path) -> None:
    train(tmp_path / "r", workers=2)
    found = probes.open(tmp_path / "r")
    assert [len(found["p", "0", leaf]) for leaf in ("output", "grad_output")] == [6, 6]
    assert probes.verify(tmp_path / "r").ok


def test_a_fork_that_goes_on_training_and_closes_the_run_changes_no_file(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with probes.attach(model, SPEC, out=tmp_path / "r") as run, run.epoch(0):
        for x in run.steps([torch.ones(3, 4)] * 3):
            model(x).sum().backward()
            child = os.fork()
            if not child:
                code = 1
                try:
                    for _ in range(5):
                        model(x).sum().backward()
                    run.close()
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
    assert len(probes.open(tmp_path / "r")["p", "0", "output"]) == 3
    assert probes.verify(tmp_path / "r").ok
