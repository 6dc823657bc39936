from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import probes
from probes.runner.attach import attach

SPEC = {"version": 1, "name": "t", "probes": {"inputs": {"hook": "pre-forward", "modules": [""], "values": ["input.input"]}}}


def test_inputs_of_the_root_are_captured_from_the_first_call_of_every_epoch(tmp_path: Path) -> None:
    """Around a script an epoch ends, and the next one opens, within the root's own call."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.arange(4.0).reshape(2, 2)), batch_size=1)
    with attach(model, SPEC, out=tmp_path / "run", automatic=True):
        for _ in range(3):
            for (x,) in data:
                model(x).sum().backward()
                optimizer.step()
    series = probes.open(tmp_path / "run")["inputs", ""]
    assert [(capture.clock.epoch, capture.clock.step, capture.value[0, 0]) for capture in series] == [
        (0, 0, 0),
        (0, 1, 2),
        (1, 0, 0),
        (1, 1, 2),
        (2, 0, 0),
        (2, 1, 2),
    ]


def test_after_the_run_the_model_carries_no_hook(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with attach(model, SPEC, out=tmp_path / "run") as run, run.epoch(0):
        model(torch.ones(1, 2))
    assert not model._forward_pre_hooks
    assert not model._forward_hooks


def forward_spec(**when: Any) -> dict[str, Any]:
    return {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "when": when}}}


def test_a_module_called_outside_the_model_after_a_step_that_is_not_due_is_captured(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0.0"], "when": {"steps": {"at": [0, 2]}}}}}
    with attach(model, spec, out=tmp_path / "run") as run:
        for step in run.steps(range(3)):
            (model if step < 2 else model[0])(torch.ones(1, 2))
    assert [capture.clock.step for capture in probes.open(tmp_path / "run")["p", "0.0"]] == [0, 2]


def test_a_hook_that_the_user_registers_later_runs_after_hooks_of_probes(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with attach(model, forward_spec(steps={"every": 2}), out=tmp_path / "run") as run:
        for step in run.steps(range(3)):
            model(torch.ones(1, 2))
            if step == 1:
                model[0].register_forward_hook(lambda _module, _args, output: torch.zeros_like(output))
    values = probes.open(tmp_path / "run")["p", "0"].numpy()
    assert (values[1] == values[0]).all()
