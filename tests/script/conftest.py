"""Running small programs in this process, and leaving it as it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from multiprocessing.process import BaseProcess
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from torch.nn import Module
from torch.utils.data import DataLoader

import probes
from probes.script.program import Program
from probes.script.progress import Progress
from probes.script.run_request import RunRequest
from probes.script.session import Session
from probes.spec import load_spec

PRELUDE = """
import sys
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import LBFGS, SGD
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.head = nn.Linear(2, 1)
    def forward(self, x):
        return self.head(torch.tanh(self.fc(x)))

def loader(size, batch, **options):
    return DataLoader(TensorDataset(torch.randn(size, 3)), batch_size=batch, **options)

def step(net, optimizer, x):
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
"""


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """Every test leaves `__main__`, the arguments, the path and torch's own methods as they were."""
    before = sys.modules["__main__"], sys.argv, list(sys.path)
    methods = Module.__call__, DataLoader.__iter__, BaseProcess.start
    yield
    sys.modules["__main__"], sys.argv = before[0], before[1]
    sys.path[:] = before[2]
    assert (Module.__call__, DataLoader.__iter__, BaseProcess.start) == methods


@dataclass
class Outcome:
    """What became of a program with probes."""

    code: int
    said: str
    out: Path

    def clocks(self, phase: str = "train", probe: str = "acts", target: str = "fc") -> list[tuple[int, int, int]]:
        """(epoch, step, microstep) of every capture of a probe's target."""
        series = probes.open(self.out).sel(phase=phase)[probe, target]
        return [(int(clock["epoch"]), int(clock["step"]), int(clock["microstep"])) for clock in series.clocks]

    def steps(self, phase: str = "train", probe: str = "acts", target: str = "fc") -> dict[int, int]:
        """Distinct steps in which a probe's target was captured, by epoch."""
        distinct = {(epoch, step) for epoch, step, _ in self.clocks(phase, probe, target)}
        return {epoch: sum(1 for other, _ in distinct if other == epoch) for epoch in sorted({epoch for epoch, _ in distinct})}


Probed = Callable[..., Outcome]


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    """Run a program with a spec: by default activations of `fc` in both phases."""

    def run(
        text: str,
        spec: dict[str, Any] | None = None,
        *,
        clock: dict[str, Any] | None = None,
        arguments: tuple[str, ...] = (),
        out: str = "",
        resume: bool = False,
    ) -> Outcome:
        script = tmp_path / "train.py"
        script.write_text(PRELUDE + dedent(text))
        acts = {"hook": "forward", "modules": ["fc"], "when": {"phases": ["train", "eval"]}}
        data = spec or {"version": 1, "probes": {"acts": acts}, **({"clock": clock} if clock else {})}
        said, folder = StringIO(), tmp_path / "run"
        session = Session(RunRequest(load_spec(data), out or str(folder), resume=resume), Progress(stream=said))
        done = session.run(Program(str(script), arguments))
        return Outcome(done.code, f"{said.getvalue()}{done.failure or ''}", folder)

    return run
