"""Optimizer steps that are running, and copies of the probed parameters from before them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from probes.hooks.capture.run_state import Gate
from probes.hooks.optimizer import OptimizerTap
from probes.tensors import require_memory


class RunningStep:
    """A step of an optimizer that has begun.

    Attributes:
        optimizer: the optimizer.
        frame: id of the frame that runs it; after an exception the frame is freed.
        parameters: tap -> the parameter that it had when the step began; those of due probes, on parameters that the optimizer holds.
        before: copies of the parameters of which `update` is due, by id.
        changes: what became of them, by id.
        within: optimizers that were stepped within it, with the taps that they would have served.
    """

    def __init__(self, optimizer: Optimizer, frame: int) -> None:
        self.optimizer = optimizer
        self.frame = frame
        self.parameters: dict[OptimizerTap, Tensor] = {}
        self.before: dict[int, Tensor] = {}
        self.changes: dict[int, Tensor] = {}
        self.within: list[Optimizer] = []

    def copy(self, tap: OptimizerTap, parameter: Tensor) -> None:
        """Keep the parameter as it was before the step, if the tap needs it; one copy serves all probes."""
        try:
            if tap.root == "update" and id(parameter) not in self.before:
                require_memory(parameter)
                self.before[id(parameter)] = parameter.detach().clone()
            self.parameters[tap] = parameter
        except Exception as error:  # the hook boundary: a failing probe must not change training
            tap.failed(error, tap.path, tap.state)

    def change(self, parameter: Tensor) -> Tensor:
        """The parameter's value now minus its value before the step; computed once."""
        if id(parameter) not in self.changes:
            require_memory(parameter)
            self.changes[id(parameter)] = parameter.detach().sub(self.before[id(parameter)])
            del self.before[id(parameter)]
        return self.changes[id(parameter)]


class OptimizerSteps:
    """Passes the effects of optimizers to the probes on them.

    A step of an optimizer within that of another, as wrappers do it, is a part of the outer one where both hold the parameter.

    Args:
        taps: the probes on `update` and `state`.
    """

    def __init__(self, taps: Sequence[OptimizerTap]) -> None:
        self.taps = taps
        self._running: dict[int, list[RunningStep]] = defaultdict(list)

    @property
    def running(self) -> list[RunningStep]:
        """The running steps of this thread, the innermost last."""
        return self._running[get_ident()]

    def begin(self, optimizer: Optimizer, due: frozenset[Gate], frame: FrameType) -> None:
        """An optimizer begins a step.

        Args:
            optimizer: the optimizer.
            due: the gates that are open, or will be if its closure calls the model.
            frame: what calls the hooks and runs the step.
        """
        wanted = [tap for tap in self.taps if tap.gate in due]
        if not wanted:
            return
        if self.running:
            self._forget_raised(frame)
        step = RunningStep(optimizer, id(frame))
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        with torch.no_grad():
            for tap in wanted:
                parameter = tap.tensor
                if parameter is not None and id(parameter) in held and not tap.lazy:
                    step.copy(tap, parameter)
        self.running.append(step)

    def _forget_raised(self, frame: FrameType) -> None:
        """Forget steps that ended with an exception: only steps with a frame around this one are running."""
        around: set[int] = set()
        above: Any = frame.f_back
        while above is not None:
            around.add(id(above))
            above = above.f_back
        self.running[:] = [step for step in self.running if step.frame in around]

    def end(self, optimizer: Optimizer, held: set[int]) -> None:
        """An optimizer has ended a step.

        Args:
            optimizer: the optimizer.
            held: ids of its parameters.
        """
        found = next((step for step in reversed(self.running) if step.optimizer is optimizer), None)
        if found is not None:
            del self.running[self.running.index(found) :]
        if has_overflow(optimizer):
            return
        for tap in self.taps:
            if tap.gate.due and id(tap.tensor) in held:
                around = next((step for step in self.running if tap in step.parameters), None)
                if around is not None:
                    around.within.append(optimizer)
                else:
                    self._serve(tap, optimizer, found)

    def _serve(self, tap: OptimizerTap, optimizer: Optimizer, step: RunningStep | None) -> None:
        parameter = tap.tensor
        known = step.parameters.get(tap) if step is not None else None
        if tap.root == "state":
            tap.on_state([optimizer, *dict.fromkeys(step.within if step is not None else ())])
        elif step is None or parameter is None or known is not parameter:
            tap.on_unknown()
        else:
            try:
                with torch.no_grad():
                    change = step.change(parameter)
            except Exception as error:  # as in `copy`
                tap.failed(error, tap.path, tap.state)
                return
            tap.on_update(change)

    def clear(self) -> None:
        """Release the copies."""
        self._running.clear()


def has_overflow(optimizer: Optimizer) -> bool:
    """Whether a GradScaler makes a fused optimizer skip its update, because a gradient has overflowed."""
    found = getattr(optimizer, "found_inf", None)  # GradScaler sets it during the step
    return isinstance(found, Tensor) and bool(found.item())
