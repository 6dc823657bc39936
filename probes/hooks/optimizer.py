"""The change of a parameter by a step of an optimizer, and the optimizer's state for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from probes.hooks.capture.run_state import CaptureClock
from probes.hooks.tensor import TensorTap
from probes.tensors import NotCapturable


class OptimizerTap(TensorTap):
    """Captures `update` or `state` of a parameter after the step of an optimizer that holds it; the run calls it."""

    __slots__ = ()

    def attach(self) -> list[Any]:
        """Register nothing on the parameter."""
        self.notice(self.tensor)
        return []

    def is_due(self) -> bool:
        """Whether the open step is due; an optimizer steps outside of any call, so `calls` of the schedule does not count."""
        if self.state.collect is not None:
            self.state.collect()
        return self.state.open and self.gate.due

    def on_update(self, change: Tensor) -> None:
        """An optimizer has changed the parameter.

        Args:
            change: the value after the step minus the value before it, in memory of its own.
        """
        if self.is_due():
            self.take(change, self.state, self.time())

    def on_state(self, optimizers: Sequence[Optimizer]) -> None:
        """An optimizer has stepped the parameter.

        Args:
            optimizers: it, and those that it has stepped within its own step; the first that keeps state for the parameter counts.
        """
        tensor = self.tensor
        if tensor is None or not self.is_due():
            return
        kept = next((found for one in optimizers if (found := state_of(one, tensor))), None)
        if kept is not None:
            self.take(kept, self.state, self.time())
        elif tensor.grad is None:
            self.absence = "not reached"  # state begins with the first gradient
        else:
            self.account.fired += 1
            message = f"the `state` of the optimizer `{type(optimizers[0]).__name__}` has no entry for the parameter"
            self.failed(NotCapturable("no state", message), self.path, self.state)

    def on_unknown(self) -> None:
        """An optimizer has stepped the parameter, and the begin of the step was not observed."""
        if self.is_due():
            self.absence = "unknown before"

    def handle(self, value: object, at: CaptureClock, call: int) -> None:
        """Store every tensor and number of a value; `call` counts the optimizer's steps within one step of the run."""
        self.account.fired += 1
        for recorder, tensor in self.parts(numbers_as_tensors(value)):
            self.put(recorder, tensor, at, call)


def state_of(optimizer: Optimizer, parameter: Tensor) -> Mapping[Any, Any] | None:
    """The state of an optimizer for a parameter; None if it has none."""
    state = getattr(optimizer, "state", None)  # a wrapper may have no state
    found = state.get(parameter) if isinstance(state, Mapping) else None
    return found if isinstance(found, Mapping) and found else None


def numbers_as_tensors(value: object) -> object:
    """A state with a tensor for each number: integers as int64, floats as float64."""
    if isinstance(value, bool | int):
        return torch.tensor(value)
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    if isinstance(value, Mapping):
        return {key: numbers_as_tensors(member) for key, member in value.items()}
    return [numbers_as_tensors(member) for member in value] if isinstance(value, list | tuple) else value
