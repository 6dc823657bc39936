"""What the gradient of an output costs, against a full backward hook that saves the same tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.row import Row
from benchmarks.stack import MODULES, Probed
from benchmarks.turns import by_turns, ratios

STEPS = 12
TURNS = 101


def linears() -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(32, 32) for _ in range(MODULES)))


def train(model: nn.Module, x: Tensor) -> None:
    model(x).sum().backward()


def full_backward(module: nn.Module) -> None:
    kept: list[Tensor] = []

    def save(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
        kept[:] = [outputs[0].clone()]

    module.register_full_backward_hook(save)


def tensor_hook(module: nn.Module) -> None:
    kept: list[Tensor] = []

    def arm(_module: nn.Module, _args: Any, output: Tensor) -> None:
        output.register_hook(lambda grad: kept.__setitem__(slice(None), [grad.clone()]))

    module.register_forward_hook(arm)


def armed(x: Tensor, arm: Callable[[nn.Module], None]) -> float:
    model = linears()
    for module in model:
        arm(module)
    began = perf_counter()
    for _ in range(STEPS):
        train(model, x)
    return perf_counter() - began


def rows(folder: Path) -> Iterator[Row]:
    x = torch.randn(32, 32, requires_grad=True)
    with ExitStack() as exits:
        ours = Probed(exits, folder, linears(), lambda model: train(model, x), hook="backward")
        found = by_turns(
            {
                "bare": lambda: armed(x, lambda module: None),
                "full": lambda: armed(x, full_backward),
                "hand": lambda: armed(x, tensor_hook),
                "ours": lambda: ours.seconds(STEPS),
            },
            TURNS,
        )
    floor, taken = ratios(found, "hand", "full", "bare"), ratios(found, "ours", "full", "bare")
    note = f"A tensor hook written by hand that clones and writes nothing takes {floor.median:.2f}."
    topic = "Gradient of an output: 4 KiB from 25 Linear layers"
    yield Row(topic, "time added, divided by full backward hooks that save the same tensor", taken, "x", "<= 0.5", 0.48, note)
