"""Forked children of a process with probes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import probes
from tests.warm import programs

SPEC = {
    "version": 1,
    "name": "r",
    "probes": {
        "p": {"modules": ["0"], "values": ["output"], "when": {"phases": ["train", "eval"]}},
        "g": {"modules": ["0"], "values": ["grad_output"]},
    },
}


class Encoded(Dataset[Tensor]):
    """Calls the probed model in the worker that makes the batch."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Tensor:
        with torch.no_grad():
            return self.model[0](torch.full((4,), float(index))) * 0 + self.model(torch.ones(4)).sum()  # type: ignore[index]  # a Sequential, typed as a Module


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
    assert [len(found[probe, "0"]) for probe in ("p", "g")] == [6, 6]
    assert probes.verify(tmp_path / "r").ok


def test_a_fork_that_continues_the_training_overwrites_nothing_of_its_parent(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    ready, go = os.pipe()
    child = 0
    with probes.attach(model, SPEC, out=tmp_path / "r") as run, run.epoch(0):
        for index, x in enumerate(run.steps([torch.ones(3, 4)] * 6)):
            model(x).sum().backward()
            child = os.fork() if index == 1 else child
            if not child and index == 1:
                _train_on(run, model, ready)
            if index == 4:  # what the child has in its memory stands before what is in the file by now
                os.write(go, b".")
                assert os.waitpid(child, 0)[1] == 0
    for end in (ready, go):
        os.close(end)
    assert len(probes.open(tmp_path / "r")["p", "0"]) == 6
    assert probes.verify(tmp_path / "r").ok


def _train_on(run: Any, model: nn.Module, ready: int) -> None:
    code = 1
    try:
        os.read(ready, 1)
        assert run.engine.moment.writer is None
        assert not any(gate.due for gate in run.engine.schedule.gates.values())
        for y in run.steps([torch.zeros(3, 4)] * 2):
            model(y).sum().backward()
        run.close()
        code = 0
    finally:
        os._exit(code)


DAEMON = """
import os, sys
import torch
from torch import nn
import probes

out, when = sys.argv[1:]
model = nn.Linear(2, 2)
ends = os.pipe()

def leave():
    if os.fork():
        os.close(ends[1])
        os.read(ends[0], 1)
        os._exit(0)

run = probes.attach(model, {"version": 1, "probes": {"p": {"modules": [""], "values": ["output"]}}}, out=out)
if when == "attached":
    leave()
with run:
    for index in run.steps(range(4)):
        if (index, when) == (1, "entered"):
            leave()
        model(torch.ones(1, 2))
"""


@pytest.mark.parametrize("when", ["attached", "entered"])
def test_a_program_that_continues_in_a_fork_gets_a_message_where_to_attach(tmp_path: Path, when: str) -> None:
    done = programs.run("-c", DAEMON, str(tmp_path / "r"), when)
    assert done.stderr.count("after the fork") == 1
    assert ("UsageError" in done.stderr) == (when == "attached")
