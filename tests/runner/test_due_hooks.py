"""Hooks are on their modules in steps that are due, and off in the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from tests.old_torch import compiles_with_hooks


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    """Forget what other tests have compiled: where anything is or may be, hooks stay."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def spec(**when: Any) -> dict[str, Any]:
    return {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "when": when}}}


def counts_of(net: nn.Sequential) -> list[int]:
    """How many hooks the first module has in each of the calls that follow."""
    found: list[int] = []
    net[1].register_forward_hook(lambda *_: found.append(len(net[0]._forward_hooks)))
    return found


def test_no_hook_is_on_a_module_in_a_step_that_is_not_due(tmp_path: Path) -> None:
    net = model()
    counts = counts_of(net)
    with probes.attach(net, spec(steps={"every": 3}), out=tmp_path / "r") as run:
        for _ in run.steps(range(7)):
            net(torch.ones(1, 2))
    assert counts == [1, 0, 0, 1, 0, 0, 1]
    assert not net[0]._forward_hooks


def test_no_hook_is_on_a_module_in_a_phase_without_probes(tmp_path: Path) -> None:
    net = model()
    counts = counts_of(net)
    with probes.attach(net, spec(), out=tmp_path / "r") as run:
        for _ in run.steps(range(2)):
            net(torch.ones(1, 2))
        with run.phase("eval"):
            net(torch.ones(1, 2))
        for _ in run.steps(range(1)):
            net(torch.ones(1, 2))
    assert counts == [1, 1, 0, 1]


def test_hooks_of_other_packages_are_not_moved(tmp_path: Path) -> None:
    net = model()
    calls: list[str] = []
    net[0].register_forward_hook(lambda *_: calls.append("before"))
    with probes.attach(net, spec(steps={"every": 2}), out=tmp_path / "r") as run:
        for _ in run.steps(range(4)):
            net(torch.ones(1, 2))
        assert len(net[0]._forward_hooks) == 2
    assert calls == ["before"] * 4
    assert len(net[0]._forward_hooks) == 1


def test_the_marks_of_a_hook_are_removed_with_it(tmp_path: Path) -> None:
    net = model()
    inputs = {"version": 1, "probes": {"p": {"hook": "pre-forward", "modules": ["0"], "when": {"steps": {"at": [0]}}}}}
    with probes.attach(net, inputs, out=tmp_path / "r") as run:
        for _ in run.steps(range(2)):
            net(torch.ones(1, 2))
    assert not net[0]._forward_pre_hooks
    assert not net[0]._forward_pre_hooks_with_kwargs


@compiles_with_hooks
@pytest.mark.parametrize("at", [1, 2], ids=["where the step is not due", "where the step is due"])
def test_a_function_that_is_compiled_in_the_middle_is_captured_from_the_next_step_on(tmp_path: Path, at: int) -> None:
    net = model()
    x = torch.ones(1, 2)

    def forward(x: Tensor) -> Tensor:
        result: Tensor = net(x)
        return result

    call = forward
    with probes.attach(net, spec(steps={"every": 2}), out=tmp_path / "r") as run:
        for step in range(7):
            if step == at:
                call = torch.compile(forward, backend="eager")
            with run.step():
                call(x)
    steps = [capture.clock.step for capture in probes.open(tmp_path / "r")["p", "0"]]
    assert steps == [0, 2, 4, 6]


def test_probes_with_two_schedules_on_a_module_are_captured_after_torch_compile_was_called(tmp_path: Path) -> None:
    torch.compile(torch.square, backend="eager")
    net = model()
    everywhere = {"hook": "forward", "modules": ["0"], "when": {"phases": ["train", "eval"]}}
    two = {"version": 1, "probes": {"p": everywhere, "q": {"hook": "forward", "modules": ["0"]}}}
    with probes.attach(net, two, out=tmp_path / "r") as run:
        for _ in run.epochs(1):
            for _ in run.steps(range(3)):
                net(torch.ones(1, 2))
    found = probes.open(tmp_path / "r")
    assert [len(found[name, "0"]) for name in "pq"] == [3, 3]
