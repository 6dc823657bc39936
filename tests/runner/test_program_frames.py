"""A step of an optimizer within another one is a part of it: an optimizer of a derived class, and one that steps others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

import probes

SPEC = {
    "version": 1,
    "clock": {"step": "update"},
    "probes": {
        "acts": {"modules": ["0"], "values": ["output"]},
        "grad": {"hook": "tensor", "tensors": ["0.weight"]},
        "update": {"hook": "tensor", "tensors": ["0.weight"], "values": ["update"]},
    },
}


class Derived(SGD):
    """Calls the step of its base, as many optimizers of repositories do."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Several(Optimizer):
    """Has the parameters of two optimizers and steps both."""

    def __init__(self, model: nn.Sequential) -> None:
        super().__init__(model.parameters(), {})
        self.parts = [SGD(model[0].parameters(), lr=0.1), Adam(model[1].parameters(), lr=0.1)]

    def step(self, closure: Any = None) -> None:
        for part in self.parts:
            part.step()


@pytest.mark.parametrize("made", [lambda model: Derived(model.parameters(), lr=0.1), Several], ids=["derived", "several"])
def test_a_step_within_a_step_is_a_part_of_it(tmp_path: Path, made: Callable[[nn.Sequential], Optimizer]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    SGD(model.parameters(), lr=0.1)  # PyTorch wraps the step of a class when its first instance is made
    optimizer = made(model)
    by_hand = []
    with probes.attach(model, SPEC, out=tmp_path / "run") as run, run.epoch(0):
        for x in torch.ones(4, 1, 3):
            before = model[0].weight.detach().clone()
            optimizer.zero_grad()
            model(x).sum().backward()
            gradient = model[0].weight.grad.clone()
            optimizer.step()
            by_hand.append((gradient, model[0].weight.detach() - before))
    assert run.engine.clock.seen.updates == 4
    read = probes.open(tmp_path / "run")
    assert read["acts", "0"].clocks["step"].tolist() == [0, 1, 2, 3]
    for name, place in (("grad", 0), ("update", 1)):
        (series,) = [one for one in read.series if one.key.probe == name]
        assert len(series) == 4
        assert all(torch.equal(ours, hand[place]) for ours, hand in zip(series.torch(), by_hand, strict=True))
