"""A small model in a file, and a process that is left as it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import click
import pytest
from click.testing import CliRunner

from probes.errors import ProbesError

MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.Linear(4, 4)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    def forward(self, x):
        return self.mlp(self.attn(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(Block() for _ in range(3))
        self.fc1 = nn.Linear(4, 2)
        self.fc2 = self.fc1
    def forward(self, x):
        for block in self.h:
            x = block(x)
        return self.fc1(x)

def wants(x):
    return x

def pair():
    return {"g": Block(), "d": Net()}

def broken():
    raise RuntimeError("no weights here")

number = 3
"""


@dataclass
class Said:
    """What a command said, and the code it ended with."""

    code: int
    out: str
    err: str


Invoke = Callable[..., Said]


@pytest.fixture
def invoke() -> Iterator[Invoke]:
    """Run a command in this process; our errors end it as they end the program."""
    before = sys.modules["__main__"], sys.argv, list(sys.path), set(sys.modules)

    def run(command: click.Command, *words: object) -> Said:
        done = CliRunner().invoke(command, [str(word) for word in words])
        error = done.exception
        if isinstance(error, ProbesError):
            return Said(error.exit_code, done.stdout, done.stderr + str(error))
        if error is not None and not isinstance(error, SystemExit):
            raise error
        return Said(done.exit_code, done.stdout, done.stderr)

    yield run
    sys.modules["__main__"], sys.argv, sys.path[:] = before[0], before[1], before[2]
    for name in ("model", "_model_model"):
        if name not in before[3]:
            sys.modules.pop(name, None)


Written = Callable[[str, str], Path]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Write a file into the working directory, which is empty but for `model.py`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(dedent(text))
        return path

    return write


def squeezed(text: str) -> Sequence[str]:
    """The lines of a table with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines()]
