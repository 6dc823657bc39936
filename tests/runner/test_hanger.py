"""Hooks are on the model in steps that are due, and off it in the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import probes


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def spec(**when: Any) -> dict[str, Any]:
    return {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "when": when}}}


def hung(net: nn.Sequential) -> list[int]:
    """How many hooks the first module has in each of the calls that follow."""
    found: list[int] = []
    net[1].register_forward_hook(lambda *_: found.append(len(net[0]._forward_hooks)))
    return found


def test_nothing_hangs_on_a_module_in_a_step_that_is_not_due(tmp_path: Path) -> None:
    net = model()
    found = hung(net)
    with probes.attach(net, spec(steps={"every": 3}), out=tmp_path / "r") as run:
        for _ in run.steps(range(7)):
            net(torch.ones(1, 2))
    assert found == [1, 0, 0, 1, 0, 0, 1]
    assert not net[0]._forward_hooks


def test_nothing_hangs_on_a_module_in_a_phase_without_probes(tmp_path: Path) -> None:
    net = model()
    found = hung(net)
    with probes.attach(net, spec(), out=tmp_path / "r") as run:
        for _ in run.steps(range(2)):
            net(torch.ones(1, 2))
        with run.phase("eval"):
            net(torch.ones(1, 2))
        for _ in run.steps(range(1)):
            net(torch.ones(1, 2))
    assert found == [1, 1, 0, 1]


def test_a_module_called_on_its_own_after_a_step_that_was_not_due_is_noticed(tmp_path: Path) -> None:
    net = nn.Sequential(model())
    wanted = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0.0"], "when": {"steps": {"at": [0, 2]}}}}}
    with probes.attach(net, wanted, out=tmp_path / "r") as run:
        for step in run.steps(range(3)):
            (net if step < 2 else net[0])(torch.ones(1, 2))
    assert [capture.clock.step for capture in probes.open(tmp_path / "r")["p", "0.0"]] == [0, 2]


def test_a_hook_that_came_while_ours_was_down_stays_behind_it(tmp_path: Path) -> None:
    net = model()
    with probes.attach(net, spec(steps={"every": 2}), out=tmp_path / "r") as run:
        for step in run.steps(range(3)):
            net(torch.ones(1, 2))
            if step == 1:
                net[0].register_forward_hook(_zeroed)
    values = probes.open(tmp_path / "r")["p", "0"].numpy()
    assert values.all()
    assert (values[1] == values[0]).all()


def test_hooks_of_others_are_left_where_they_are(tmp_path: Path) -> None:
    net = model()
    calls: list[str] = []
    net[0].register_forward_hook(lambda *_: calls.append("before"))
    with probes.attach(net, spec(steps={"every": 2}), out=tmp_path / "r") as run:
        for _ in run.steps(range(4)):
            net(torch.ones(1, 2))
        assert len(net[0]._forward_hooks) == 2
    assert calls == ["before"] * 4
    assert len(net[0]._forward_hooks) == 1


def _zeroed(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
    return torch.zeros_like(output)
