import json
from pathlib import Path

import pytest

from probes.commands.neutral import neutral, text
from probes.script.neutrality.comparison import NeutralityVerdict
from tests.commands.conftest import Invoke, Written
from tests.warm import programs

SCRIPT = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout()
    def forward(self, x):
        return self.drop(torch.relu_(self.norm(self.fc(x))))

net = Net()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    optimizer.zero_grad()
    net(torch.randn(4, 3)).sum().backward()
    {what}
    optimizer.step()
"""
SPEC = """
version: 1
probes:
  all: {modules: ["**"], values: [input, output, grad_output, grad_input_total]}
  final: {hook: tensor, tensors: ["**"], stage: final}
"""


@pytest.fixture(autouse=True)
def folder(written: Written, monkeypatch: pytest.MonkeyPatch) -> Path:
    written("train.py", SCRIPT.replace("{what}", "pass"))
    monkeypatch.setattr("sys.executable", str(programs.commands() / "python"))
    return written("probe.yaml", SPEC).parent


def test_probes_that_only_capture_change_nothing_in_a_script_without_seeds(invoke: Invoke) -> None:
    said = invoke(neutral, "--json", "probe.yaml", "train.py")
    assert said.code == 0, said.out
    found = json.loads(said.out)
    assert (found["neutral"], found["steps"], found["backwards"], found["tensors"]) == (True, 3, 3, 7)


def test_a_difference_is_named_by_its_first_place(invoke: Invoke, written: Written) -> None:
    meddling = 'net.fc.bias.grad.mul_(2 if nn.Module.__call__.__module__ != "torch.nn.modules.module" else 1)'
    written("train.py", SCRIPT.replace("{what}", meddling))
    said = invoke(neutral, "probe.yaml", "train.py")
    assert said.code == 1
    assert said.out == "NOT neutral: optimizer step 0 (Adam): gradients, weights\n"


def test_a_script_that_fails_is_not_compared(invoke: Invoke, written: Written) -> None:
    written("train.py", "import torch\nraise ValueError('no data')\n")
    said = invoke(neutral, "probe.yaml", "train.py")
    assert said.code == 1
    assert "the script ended with code 1 without probes" in said.err
    assert "ValueError: no data" in said.err


def test_a_script_that_differs_from_itself_is_reported() -> None:
    said = text(NeutralityVerdict(False, 3, 3, 7, "backward 0: loss", reproducible=False, declared=("p on fc:grad_input",)))
    assert said.splitlines()[0] == "NOT neutral: backward 0: loss"
    assert "also differs from itself without probes" in said
    assert said.splitlines()[-1] == "the plan marks as not neutral: p on fc:grad_input"


def test_an_option_after_the_spec_is_answered_with_its_right_place(invoke: Invoke) -> None:
    said = invoke(neutral, "probe.yaml", "--json", "train.py")
    assert said.code == 2
    assert "options of `probes neutral` come before the spec" in said.err
