"""Programs that take away what a run would use: stderr, or the news that a child has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import probes
from tests.warm import programs

SPEC = "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc]}\n"
TRAINING = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    globals().get("into_whatever_has_their_numbers", int)()
print("trained", flush=True)
"""
REAPS = """
import os, signal

def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass

signal.signal(signal.SIGCHLD, reap)
"""
CLOSED = """
import os
for number in (0, 2):
    os.close(number)

def into_whatever_has_their_numbers():
    for number in (0, 2):
        try:
            os.write(number, b"printed")
        except OSError:
            pass
"""
TAKEN = {
    "stderr is closed": "import sys; sys.stderr.close()",
    "stderr is None": "import sys; sys.stderr = None",
    "children are ignored": "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "children are reaped": REAPS,
}


def capture(taken: str, folder: Path) -> list[str]:
    (folder / "probe.yaml").write_text(SPEC)
    (folder / "train.py").write_text(taken + TRAINING)
    return ["-m", "probes", "run", "--out", "run", "probe.yaml", "train.py"]


def has_ended_well(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert len(probes.open(folder / "run")["acts", "fc"]) == 3
    assert probes.verify(folder / "run").ok


@pytest.mark.parametrize("taken", TAKEN)
def test_a_program_is_captured_and_ends_as_it_would(taken: str, tmp_path: Path) -> None:
    has_ended_well(programs.run(*capture(TAKEN[taken], tmp_path), cwd=tmp_path), tmp_path)


def test_nothing_that_is_printed_gets_into_a_file_of_the_run(tmp_path: Path) -> None:
    """The descriptors of stdin and stderr are closed, so that the next files to be opened have their numbers."""
    words = [sys.executable, *capture(CLOSED, tmp_path)]
    has_ended_well(subprocess.run(words, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False), tmp_path)
