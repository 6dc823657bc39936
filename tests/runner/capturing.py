"""Shared parts of tests of captures: a small model, its training, and hooks written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import probes

Loop = Callable[[nn.Module, Any], None]


class Block(nn.Module):
    """Two branches, an in-place ReLU behind a probed layer, keyword inputs and a dict output."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.relu = nn.ReLU(inplace=True)
        self.b = nn.Linear(8, 8)
        self.c = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.relu(self.a(x))
        hidden = hidden + self.b(input=hidden)
        return {"logits": self.c(hidden), "hidden": hidden}


def batches(count: int = 3, size: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(size, 4, generator=generator) for _ in range(count)]


def train(model: nn.Module, data: Any) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x in data:
        optimizer.zero_grad()
        out = model(x)
        loss = (out["logits"] if isinstance(out, dict) else out).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def record(model: nn.Module, path: Path, data: Any = None, loop: Any = train, **probe: Any) -> Any:
    """Run a loop with one probe called `p` and open what it wrote."""
    with probes.attach(model, {"version": 1, "name": "t", "probes": {"p": probe}}, out=path / "run") as run, run.epoch(0):
        loop(model, run.steps(batches() if data is None else data))
    return probes.open(path / "run")


def by_hand(model: nn.Module, path: str, kind: str) -> tuple[list[Tensor], list[Any]]:
    """Hooks as PyTorch's documentation writes them, with the clone it forgets."""
    saved: list[Tensor] = []
    module = model.get_submodule(path)
    if kind == "output":
        return saved, [module.register_forward_hook(lambda m, a, o: saved.append(o.detach().clone()))]
    if kind == "input":
        return saved, [
            module.register_forward_pre_hook(lambda m, a, k: saved.append((a[0] if a else k["input"]).detach().clone()), with_kwargs=True)
        ]

    def arm(_module: nn.Module, _args: Any, output: Tensor) -> None:
        output.register_hook(lambda grad: saved.append(grad.detach().clone()))

    return saved, [module.register_forward_hook(arm)]


def clocks(series: Any) -> list[Any]:
    return [capture.clock for capture in series]


def same(series: Any, saved: list[Tensor]) -> None:
    stored = series.torch()
    assert len(stored) == len(saved) > 0
    for ours, theirs in zip(stored, saved, strict=True):
        assert torch.equal(ours, theirs)
