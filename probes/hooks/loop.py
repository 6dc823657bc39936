"""Values that the training loop logs: losses, learning rates, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from probes.errors import UsageError
from probes.hooks.capture.run_state import CaptureClock
from probes.hooks.capture.tap import Tap
from probes.value_path import quoted

MOST_ELEMENTS = 1 << 16  # limit; larger values belong to a module or a parameter, which a probe names


class LoopTap(Tap):
    """Captures values that the program logs by name; no module is involved."""

    __slots__ = ()

    def begin(self) -> LoopTap:
        """Name the reason of a missing value."""
        self.absence = "not logged"
        return self

    def asks_for(self, name: str) -> bool:
        """Whether the binding captures a value of this name."""
        return not self.keys or self.keys[0] in ("*", name)

    def log(self, name: str, value: Any, at: CaptureClock) -> None:
        """Store a value, if the step is due.

        Args:
            name: the name under which it is logged.
            value: tensors, or containers of them, owned by the program.
            at: the clock of the open step, or of one that has ended.
        """
        step = at.opened
        if self.gate not in step.due or step.dropped:
            return
        step.numbered = step.numbered or {}
        first = self not in step.numbered
        step.numbered.setdefault(self, {})
        if step.over:
            self.account.fired_late(self.absence, first=first)
        else:
            self.account.fired += 1
        self.take({name: value}, at, 0)

    def handle(self, value: object, at: CaptureClock, call: int) -> None:
        """Store every tensor of a value; `call` counts how often it came in the step."""
        assert at.opened.numbered is not None  # `log` has made it
        numbered = at.opened.numbered[self]
        for recorder, tensor in self.parts(value):
            leaf = recorder.key.leaf
            times = numbered[leaf] = numbered.get(leaf, -1) + 1
            if self.within is None or self.within(at.microstep, times):
                self.put(recorder, tensor, at, times)
                self.account.give(at.opened)
            else:
                self.account.skip("filtered")


def as_tensors(name: str, value: Any, *, copies: bool = False) -> Any:
    """A logged value with a tensor for each number.

    Args:
        name: its name, for messages.
        value: a number, a tensor or an array of at most 65,536 elements, or a mapping or a list of such.
        copies: whether it is kept while the program continues, which may change its tensors in place.

    Returns:
        The same structure; floats as float64, integers as int64, tensors detached, in memory of their own where `copies`.

    Raises:
        UsageError: it is something else.
    """
    if isinstance(value, Mapping):
        return {str(key): as_tensors(f"{name}.{quoted(str(key))}", member, copies=copies) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [as_tensors(f"{name}.{index}", member, copies=copies) for index, member in enumerate(value)]
    tensor = _tensor(name, value)
    if tensor.numel() > MOST_ELEMENTS:
        message = f"`{name}` has {tensor.numel():,} elements, and a logged value has at most {MOST_ELEMENTS:,}"
        raise UsageError(f"{message}; log a number made of it, or capture it with a probe")
    return tensor.clone() if copies and isinstance(value, Tensor) else tensor


def _tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    try:
        if isinstance(value, bool | int):
            return torch.tensor(value)
        if isinstance(value, float):
            return torch.tensor(value, dtype=torch.float64)
        if hasattr(value, "__array__") and not isinstance(value, str | bytes):
            return torch.as_tensor(value.__array__().copy())
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise UsageError(f"`{name}` cannot be stored: {error}") from None
    raise UsageError(f"`{name}` is {value!r:.60}, a {type(value).__name__}; log numbers, tensors, arrays, and mappings or lists of them")
