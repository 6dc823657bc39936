"""What it costs to see the operations of a module: the mode, for operations that the spec names and for those that it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.around import CPU, TimedByCpu
from benchmarks.row import Row
from benchmarks.stack import call
from benchmarks.turns import by_turns, ratios

MODULES = 6
STEPS = 30
TURNS = 25
PROBES: dict[str, dict[str, Any]] = {
    "named": {"hook": "forward", "ops": ["softmax"], "transforms": [{"kind": "norm"}]},
    "others": {"hook": "forward", "ops": ["tanh"]},
    "plain": {"hook": "forward", "when": {"epochs": {"at": [999]}}},
    "not due": {"hook": "forward", "ops": ["softmax"], "when": {"epochs": {"at": [999]}}},
}


class Attention(nn.Module):
    """Self-attention of one head by plain operations, ten of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, token, width) float32."""
        q, k, v = self.project(x).chunk(3, dim=-1)
        weights = (q @ k.transpose(-2, -1) * 0.125).softmax(dim=-1)
        return x + (weights @ v).relu() * 0.5


def model() -> nn.Sequential:
    """Several layers of attention."""
    return nn.Sequential(*(Attention(64) for _ in range(MODULES)))


def rows(folder: Path) -> Iterator[Row]:
    """The time of a forward with probed operations, divided by that of the same forward under no mode."""
    x = torch.randn(8, 64, 64)
    bare = model()
    with ExitStack() as exits, torch.no_grad():

        def probed(**probe: Any) -> Callable[[], float]:
            run = TimedByCpu(exits, folder, model(), lambda module: module(x), **probe)
            return lambda: run.seconds(STEPS)

        found = by_turns(
            {"bare": lambda: call(bare, x, range(STEPS), process_time), **{name: probed(**probe) for name, probe in PROBES.items()}},
            TURNS,
        )
    topic = f"Operations: {MODULES} attention layers of ten operations each, inputs of 128 KiB, forward only, {CPU}"
    for name, text in (
        ("named", "`ops: [softmax]` with `norm`, divided by the same forward under no mode"),
        ("others", "the mode alone, with no operation that the spec names"),
        ("plain", "a probe without `ops` that is not due"),
        ("not due", "a probe with `ops` that is not due"),
    ):
        yield Row(topic, text, ratios(found, name, "bare"), "x")
