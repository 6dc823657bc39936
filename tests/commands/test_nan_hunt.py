"""The preset `nan-hunt` on a net with a planted fault: the right module, step and value, however it is trained."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import probes
from probes.commands.ls import ls
from probes.commands.run import run
from tests.commands.conftest import Invoke, Said, Written

PROGRAM = '''
import sys
import torch
from torch import nn

how, fault = sys.argv[1], int(sys.argv[2])


class Standardize(nn.Module):
    """Divides by the spread of a row, which is 0 where all of it is one number."""
    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(8, 8, bias=False)
        self.norm = Standardize()
        self.act = nn.GELU()
    def forward(self, x):
        return x + self.act(self.mix(self.norm(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 8, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", enabled=how == "scaled")
batches = [(torch.randn(6, 4), torch.randint(2, (6,))) for _ in range(40)]
batches[fault][0][5] = 0  # an empty sample
accumulate = 4 if how == "accumulated" else 1
for index, (x, y) in enumerate(torch.utils.data.DataLoader(batches, batch_size=None)):
    with torch.autocast("cpu", dtype=torch.float16, enabled=how == "scaled"):
        loss = nn.functional.cross_entropy(net(x), y) / accumulate
    scaler.scale(loss).backward()
    if index % accumulate == accumulate - 1:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
print("came to its end", all(p.isfinite().all() for p in net.parameters()))
'''


@pytest.fixture
def hunt(written: Written, invoke: Invoke) -> Callable[..., Said]:
    """Run the program with the preset."""
    written("train.py", PROGRAM)

    def run_it(how: str, fault: int, *options: str) -> Said:
        return invoke(run, "--out", "run", *options, "preset:nan-hunt", "train.py", how, fault)

    return run_it


@pytest.mark.parametrize(("how", "first", "step", "microstep"), [("plain", 10, 30, 0), ("scaled", 10, 30, 0), ("accumulated", 0, 7, 2)])
def test_the_report_names_module_step_and_value_and_the_steps_before_are_stored(
    how: str, first: int, step: int, microstep: int, hunt: Callable[..., Said]
) -> None:
    said = hunt(how, 30)
    assert said.code == 1
    assert "came to its end" not in said.out
    where = f"epoch 0, train step {step}{f', microstep {microstep}' if microstep else ''}"
    assert f"first non-finite value: nan in `output` of `blocks.0.norm` (Standardize) at [5, 0], {where}; 8 of 48" in said.err
    found_counts = re.search(r"seen: (\d+) opt.*?steps(?: \((\d+) sk.*?\))?,.*calls  (\d+) opt", said.err, re.DOTALL)
    assert found_counts is not None
    seen, skipped, counted = found_counts.groups("0")
    assert int(seen) - int(skipped) == int(counted), "a step that was stopped is none"
    (found,) = probes.open("run").events
    assert (found["target"], found["leaf"], found["step"], found["microstep"]) == ("blocks.0.norm", "output", step, microstep)
    assert (found["index"], found["number"], found["nan"], found["inf"]) == ([5, 0], "nan", 8, 0)

    read = probes.open("run")
    for key in (("values", "blocks.0.norm", "output"), ("weights", "head.weight", "data")):
        assert sorted(set(read[key].clocks["step"].tolist())) == list(range(first, step + 1))
    stats = read["values", "blocks.0.norm", "output"]
    nans = stats.numpy()[:, list(stats.signature.coords["stat"]).index("nan")]
    assert nans[-1] == 8
    assert not nans[:-1].any()


def test_frames_of_probes_are_not_in_the_traceback_of_the_script(hunt: Callable[..., Said]) -> None:
    said = hunt("plain", 3, "-q")
    assert said.err.splitlines() == [
        "error: first non-finite value: nan in `output` of `blocks.0.norm` (Standardize) at [5, 0], epoch 0, train step 3; "
        "8 of 48 elements are not finite (8 nan, 0 inf); its inputs and weights are finite, "
        "so `blocks.0.norm` made it; stopped by the trigger of probe `values`"
    ]


def test_the_list_of_a_run_begins_with_its_events(hunt: Callable[..., Said], invoke: Invoke) -> None:
    hunt("plain", 3, "-q")
    assert invoke(ls, "run").out.splitlines()[:2] == [
        "run  epoch 0 incomplete",
        "nan in `output` of `blocks.0.norm` (Standardize) at [5, 0], epoch 0, train step 3: 4 steps were written",
    ]


def test_training_continues_with_then_continue(hunt: Callable[..., Said]) -> None:
    said = hunt("plain", 30, "--set", "vars.then=continue", "--set", "vars.before=2")
    assert said.code == 0, said.err
    assert "came to its end" in said.out
    assert probes.open("run")["values", "head", "output"].clocks["step"].tolist() == [28, 29, 30]


def test_overflows_of_a_scaler_do_not_fire_a_trigger(hunt: Callable[..., Said], written: Written) -> None:
    written("train.py", PROGRAM.replace('GradScaler("cpu", ', 'GradScaler("cpu", init_scale=2.0**24, ').replace("batches[fault]", "#"))
    said = hunt("scaled", 0)
    assert said.code == 0, said.err
    assert "came to its end True" in said.out
    assert "gradients overflowed in steps that GradScaler skipped; the first: " in said.err
    assert not probes.open("run").series
