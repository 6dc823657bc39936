import json

import pytest

from probes.commands.coverage import coverage
from tests.commands.conftest import Invoke, Written, squeezed

SCRIPT = """
import sys
import torch
from model import Net

class Sparse(Net):
    def forward(self, x):
        x = self.h[0](self.h[0](x))
        return self.fc1(x if x.sum() > 1e9 else self.h[1].attn(x))

net = Sparse()
for _ in range(4):
    net(torch.ones(2, 4))
with torch.no_grad():
    net.h[2].attn(torch.ones(2, 4))
print("done")
"""


@pytest.fixture(autouse=True)
def script(written: Written) -> None:
    written("train.py", SCRIPT)


def test_calls_are_counted_for_every_module(invoke: Invoke) -> None:
    said = invoke(coverage, "--all", "train.py")
    assert said.code == 0
    lines = squeezed(said.out)
    assert lines[0] == "Sparse, first called at train.py:13: 5 outermost calls, 10 of 20 modules called"
    assert said.err == "done\n"
    assert '"" Sparse 4 0-1' in lines
    assert "h.0 Block 8 0-2" in lines
    assert "h.2.attn Linear 1 0-1" in lines
    assert "h.1.mlp.1 ReLU 0 0 never called" in lines
    assert "h ModuleList 0 0 has no forward" in lines
    assert "fc2 Linear 4 0-1 same module as `fc1`" in lines


def test_blocks_that_repeat_are_one_row_that_says_how_many_never_fire(invoke: Invoke) -> None:
    lines = squeezed(invoke(coverage, "train.py").out)
    assert "h.{0..2} 3 x Block 0-8 0-2 2 of 3 never called" in lines


def test_a_spec_adds_the_probes(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", "version: 1\nprobes: {acts: {hook: forward, modules: [fc1]}}\n")
    lines = squeezed(invoke(coverage, "probe.yaml", "train.py").out)
    assert "fc1 Linear 4 0-1 acts" in lines


def test_json_is_alone_on_stdout(invoke: Invoke) -> None:
    said = invoke(coverage, "--json", "train.py")
    found = json.loads(said.out)
    assert found["outermost_calls"] == 5
    assert found["modules"][1] == {
        "model": "",
        "path": "h",
        "class": "ModuleList",
        "runs": False,
        "probes": [],
        "calls": 0,
        "within": 0,
        "most": 0,
    }
    assert "done" in said.err


def test_a_script_without_a_model_is_a_negative_answer(invoke: Invoke, written: Written) -> None:
    written("train.py", "import torch")
    said = invoke(coverage, "train.py")
    assert said.code == 1
    assert "the program called no model in this process" in said.err


def test_a_failing_script_passes_its_code_and_still_shows_what_fired(invoke: Invoke, written: Written) -> None:
    written("train.py", SCRIPT + "sys.exit(5)\n")
    said = invoke(coverage, "train.py")
    assert said.code == 5
    assert "fc1" in said.out


def test_a_spec_that_fits_nothing_is_reported(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", "version: 1\nprobes: {acts: {hook: forward, modules: [fc9]}}\n")
    said = invoke(coverage, "probe.yaml", "train.py")
    assert said.code == 2
    assert "the model has no module `fc9`" in said.err
