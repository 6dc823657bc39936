"""What values around the forward cost: updates and state of the optimizer, values of the loop, given edits, own functions, and `look`.

By CPU time, because these works are small and one core does them; the sealer is another process and not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn

import probes
from benchmarks.row import Row
from benchmarks.stack import MODULES, Probed, call, stack
from benchmarks.turns import by_turns, interval, ratios

STEPS = 10
TURNS = 25
WIDTH = 64
CPU = "by CPU time"
TENSORS = {"hook": "tensor", "tensors": ["**.weight"], "transforms": [{"kind": "norm"}]}
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "grad": ("`grad` with `stage: final` and `norm`", {**TENSORS, "values": ["grad"], "stage": "final"}),
    "update": ("`update` with `norm`", {**TENSORS, "values": ["update"]}),
    "state": ("`state.exp_avg` with `norm`", {**TENSORS, "values": ["state.exp_avg"]}),
    "loop": ("`loop.loss` and `loop.lr`, given by `run.log`", {"values": ["loop.loss", "loop.lr"]}),
}


class TimedByCpu(Probed):
    """A probed model whose steps are timed by the CPU time of the process."""

    clock = staticmethod(process_time)


class Training:
    """Steps of a training with Adam.

    Attributes:
        model: what is trained.
        run: gets the loss, if there is one.
    """

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(MODULES)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.x = torch.randn(128, WIDTH)
        self.run: Any = None

    def step(self, model: nn.Module) -> None:
        """One step."""
        loss = model(self.x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.run is not None:
            self.run.log(loss=loss, lr=1e-4)

    def seconds(self) -> float:
        """Some steps without probes."""
        began = process_time()
        for _ in range(STEPS):
            self.step(self.model)
        return process_time() - began


def rows(folder: Path) -> Iterator[Row]:
    """All of them."""
    yield from _trainings(folder)
    yield from _given(folder)
    yield from _look()


def _trainings(folder: Path) -> Iterator[Row]:
    with ExitStack() as exits:

        def probed(name: str, probe: Mapping[str, Any]) -> Callable[[], float]:
            training = Training()
            found = TimedByCpu(exits, folder, training.model, training.step, **probe)
            training.run = found.run if name == "loop" else None
            return lambda: found.seconds(STEPS)

        bare = Training().seconds
        found = by_turns({"bare": bare, **{name: probed(name, probe) for name, (_, probe) in TRAININGS.items()}}, TURNS)
    topic = f"Around the forward: training of {MODULES} linear layers of 16 KiB with Adam, divided by the same without probes, {CPU}"
    for name, (text, _) in TRAININGS.items():
        yield Row(topic, text, ratios(found, name, "bare"), "x")


def _given(folder: Path) -> Iterator[Row]:
    """An own function next to the built-in one, and an edit by a given number next to one by a constant."""
    x = torch.randn(8, 128)
    edit = {"hook": "forward", "when": {"phases": ["train", "eval"]}}
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "norm": ({"hook": "forward", "transforms": [{"kind": "norm"}]}, {}),
        "python": ({"hook": "forward", "transforms": [{"kind": "python", "function": "own"}]}, {"functions": {"own": _own}}),
        "constant": ({**edit, "edit": {"kind": "scale", "by": 0.5}}, {}),
        "given": ({**edit, "edit": {"kind": "scale", "by": {"given": "factor"}}}, {"given": {"factor": 0.5}}),
    }
    with ExitStack() as exits, torch.no_grad():

        def probed(probe: Mapping[str, Any], options: Mapping[str, Any]) -> Callable[[], float]:
            run = TimedByCpu(exits, folder, stack(), lambda module: module(x), options, **probe)
            return lambda: run.seconds(STEPS)

        found = by_turns({name: probed(*kind) for name, kind in kinds.items()}, TURNS)
    topic = f"Around the forward: outputs of 4 KiB of {MODULES} modules, {CPU}"
    for text, above, below in (
        ("a function of the program that calls `vector_norm`, divided by the transform `norm`", "python", "norm"),
        ("the edit `scale` by a given number, divided by the same by a constant", "given", "constant"),
    ):
        yield Row(topic, text, ratios(found, above, below), "x")


def _own(value: Tensor) -> Tensor:
    return torch.linalg.vector_norm(value)


def _look() -> Iterator[Row]:
    model, x = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(MODULES))), torch.randn(8, WIDTH)

    def look(modules: str) -> Callable[[], float]:
        loaded = probes.load({"version": 1, "probes": {"p": {"hook": "forward", "modules": [modules]}}})

        def timed() -> float:
            began = process_time()
            probes.look(model, loaded, x)
            return process_time() - began

        return timed

    variants = {"one": look("3"), "all": look("*"), "bare": lambda: call(model, x, range(1), process_time)}
    found = by_turns(variants, 2 * TURNS)
    topic = f"Looking once: a forward of {MODULES} linear layers, {CPU}"
    for name, text in (("one", "the output of one layer"), ("all", "the outputs of all layers")):
        figure = interval([1e3 * (row[name] - row["bare"]) for row in found])
        yield Row(topic, f"`probes.look` at {text}, less the forward alone", figure, "ms")
