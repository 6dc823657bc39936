"""The model of the small benchmarks, and what hooks add to its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import Tensor, nn

import probes
from probes.errors import RunError

Hook = Callable[[nn.Module, Any, Tensor], None]
MODULES = 25
MANY = 100
_runs = count()


def stack(modules: int = MODULES) -> nn.Sequential:
    """Modules that do nothing, so that what a hook adds is seen."""
    return nn.Sequential(*(nn.Identity() for _ in range(modules)))


def call(model: nn.Module, x: Tensor, steps: Iterable[Any], clock: Callable[[], float] = perf_counter) -> float:
    """Seconds that the model takes for some steps."""
    began = clock()
    for _ in steps:
        model(x)
    return clock() - began


def hooked(hook: Callable[[int], Hook], x: Tensor, steps: int, modules: int = MODULES) -> float:
    """Seconds of some steps with a hook on every module."""
    model = stack(modules)
    for index, module in enumerate(model):
        module.register_forward_hook(hook(index))
    return call(model, x, range(steps))


class Probed:
    """A model with one probe attached for as long as the stack of exits is open.

    The run is suspended except while it is measured: what listens to calls for one run must not be counted for another variant.

    Args:
        exits: ends the run; that it captured nothing is no failure here.
        folder: where the run goes.
        model: what is probed, at all its children.
        work: what a step does.
        options: of `probes.attach`.
        sinks: of the spec; by default capture files alone.
        probe: the probe, but for its modules.
    """

    clock = staticmethod(perf_counter)

    def __init__(
        self,
        exits: ExitStack,
        folder: Path,
        model: nn.Sequential,
        work: Callable[[nn.Module], Any],
        options: Mapping[str, Any] | None = None,
        sinks: Mapping[str, Any] | None = None,
        **probe: Any,
    ) -> None:
        limits = {"matches_per_probe": 2 * len(model)}
        where = {} if {"modules", "tensors"} & {*probe} or str(probe.get("values", [""])[0]).startswith("loop") else {"modules": ["*"]}
        whole = {**where, "expect": {"fires": "some"}, **probe}
        spec = {"version": 1, "limits": limits, "allow_edits": "edit" in probe, "probes": {"p": whole}} | (
            {"sinks": sinks} if sinks else {}
        )
        if sinks:
            spec["sinks"] = sinks
        exits.enter_context(suppress(RunError))
        self.model = model
        self.work = work
        self.run = exits.enter_context(probes.attach(model, spec, out=folder / f"run-{next(_runs)}", **options or {}))
        self.aside = exits.enter_context(ExitStack())
        self.seconds(2)  # descriptors are written before anything is measured

    def seconds(self, steps: int) -> float:
        """What some steps take, commits included."""
        self.aside.close()
        began = self.clock()
        for _ in self.run.steps(range(steps)):
            self.work(self.model)
        taken = self.clock() - began
        self.aside.enter_context(self.run.suspend())
        return taken
