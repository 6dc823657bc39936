"""A look in the middle of a run: the run does not see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import probes

EVERYTHING = {
    "version": 1,
    "probes": {
        "values": {"modules": ["0", "1"], "hook": "forward", "when": {"phases": ["train", "eval"]}},
        "inputs": {"modules": ["1"], "hook": "pre-forward", "when": {"phases": ["train", "eval"]}},
        "gradients": {"modules": ["0"], "values": ["grad_output"]},
        "parameters": {"hook": "tensor", "tensors": ["*.weight"], "values": ["grad", "data"]},
        "increments": {"hook": "tensor", "tensors": ["0.weight"], "values": ["grad"], "stage": "increment"},
    },
}
LOOK = {"version": 1, "probes": {"all": {"modules": [""], "values": ["output", "grad_output"]}}}


class Net(nn.Sequential):
    """Two layers, with activation checkpointing where it is requested, and a place for a look within the forward."""

    def __init__(self, checkpointed: bool = False) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Linear(3, 3), nn.Linear(3, 1))
        self.checkpointed = checkpointed
        self.within: Callable[[], None] = lambda: None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(self[0], x, use_reentrant=False) if self.checkpointed else self[0](x)
        self.within()
        result: torch.Tensor = self[1](y).sum()
        return result


def look(model: nn.Module) -> None:
    output = "output" if isinstance(model, Net) else lambda value: value.sum()
    with torch.enable_grad():
        found = probes.look(model, LOOK, torch.ones(2, 3), backward=output)
    assert len(found.series) == 2


def before_backward(model: Net, part: str, wanted: str) -> None:
    if part == wanted:
        look(model)


def captured(path: Path, model: Net, place: str) -> tuple[dict[str, Any], str]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probes.attach(model, EVERYTHING, out=path) as run:
        if place == "within the forward":
            model.within = lambda: look(model[1])
        for _ in run.epochs(2):
            for index in range(3):
                before_backward(model, "before the step", place)
                loss = model(torch.full((2, 3), index + 1.0))
                before_backward(model, "before the backward", place)
                loss.backward()
                before_backward(model, "after the backward", place)
                optimizer.step()
                optimizer.zero_grad()
            with torch.no_grad():
                model.eval()(torch.ones(2, 3))
                model.train()
    series = {str(one.key): (one.clocks.tolist(), one.numpy().tolist()) for one in probes.open(path).series}
    return series, str(run.summary()).splitlines()[-1]


@pytest.mark.parametrize("place", ["before the step", "before the backward", "after the backward", "within the forward"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_run_does_not_count_a_look(place: str, checkpointed: bool, tmp_path: Path) -> None:
    bare = captured(tmp_path / "bare", Net(checkpointed), "")
    assert captured(tmp_path / "looked", Net(checkpointed), place) == bare


def test_a_look_on_one_thread_does_not_affect_the_run_of_another(tmp_path: Path) -> None:
    model, entered, looked = Net(), Event(), Event()

    def wait(*_: object) -> None:
        if not entered.is_set():
            entered.set()
            assert looked.wait(20)

    handle = model[0].register_forward_hook(wait)
    wanted = {"version": 1, "probes": {"values": {"modules": ["0", "1"], "hook": "forward"}}}
    with probes.attach(model, wanted, out=tmp_path / "run") as run, run.epoch(0):
        thread = Thread(target=model, args=(torch.full((2, 3), 2.0),))
        thread.start()
        assert entered.wait(20)
        probes.look(model, {"version": 1, "probes": {"all": {"modules": ["*"], "values": ["output"]}}}, torch.ones(2, 3))
        looked.set()
        thread.join()
    handle.remove()
    found = probes.open(tmp_path / "run")
    assert {str(one.key): one.steps.tolist() for one in found.series} == {"values/0:output": [0], "values/1:output": [0]}
    assert torch.equal(found["values", "0"].torch()[0], model[0](torch.full((2, 3), 2.0)).detach())
