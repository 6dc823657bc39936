"""The record of a neutrality child: losses, gradients, weights, random generators."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from probes.digest import blake3_hex, canonical
from probes.hooks.capture.tracing import breaks_graph, outside_graphs
from probes.provenance.environment import generators
from probes.provenance.weights_record import tensor_hex
from probes.runner.watch.process_hooks import module_assigned, optimizer_stepped
from probes.tensors import NotCapturable

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class NeutralityRecord:
    """Records every backward, every optimizer step and the end of a program; in this process, not in its workers.

    Args:
        path: the file to write.
    """

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8")
        self._pid = os.getpid()
        self._tops: dict[int, Module] = {}
        self._steps = 0
        self._backwards = 0
        self._ends: list[Callable[[], None]] = []
        self._backward: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def start(self) -> None:
        """Begin to record."""
        self._ends = [
            module_assigned.add(self._registered),
            optimizer_stepped.add(self._stepped),
        ]
        original = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self._begins(tensors)
            return original(tensors, *args, **kwargs)

        self._backward = (original, backward)
        torch.autograd.backward = backward

    def close(self, code: int) -> None:
        """Write the final state.

        Args:
            code: exit code of the program.
        """
        if self._backward is not None and torch.autograd.backward is self._backward[1]:
            torch.autograd.backward = self._backward[0]
        while self._ends:
            self._ends.pop()()
        models = [
            {"class": type(module).__name__, "state": _digests(_state(module)), "hooks": _hooks(module)} for module in self._tops.values()
        ]
        self._write("end", code=code, models=models, generators=generators().digests)
        self.file.close()

    @outside_graphs
    def _registered(self, module: Module, _name: str, member: Module | None) -> None:
        """Hold the topmost modules: the program may release them before the end."""
        self._tops.setdefault(id(module), module)
        if member is not None:
            self._tops.pop(id(member), None)

    def _begins(self, tensors: Any) -> None:
        if os.getpid() == self._pid:
            losses = [tensors] if isinstance(tensors, Tensor) else list(tensors)
            self._write("backward", number=self._backwards, loss=[_digest(loss) for loss in losses])
            self._backwards += 1

    @breaks_graph
    def _stepped(self, optimizer: Optimizer, *_args: object) -> None:
        if os.getpid() != self._pid:
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._write(
            "step",
            number=self._steps,
            optimizer=type(optimizer).__name__,
            gradients=_combined([parameter.grad for parameter in parameters]),
            weights=_combined(parameters),
            generators=generators().digests,
        )
        self._steps += 1

    def _write(self, event: str, **details: Any) -> None:
        self.file.write(json.dumps({"event": event, **details}) + "\n")


def _state(module: Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _digests(tensors: dict[str, Tensor]) -> dict[str, str | None]:
    return {name: _digest(tensor) for name, tensor in tensors.items()}


def _digest(tensor: Tensor | None) -> str | None:
    if tensor is None or is_lazy(tensor):
        return None
    try:
        return tensor_hex(tensor)
    except NotCapturable:
        return None


def _combined(tensors: Sequence[Tensor | None]) -> str:
    return blake3_hex(canonical([_digest(tensor) for tensor in tensors]))


def _hooks(module: Module) -> int:
    """The number of hooks on a module, the modules below it and their parameters."""
    of_modules = sum(len(getattr(one, table)) for one in module.modules() for table in HOOKS)
    of_tensors = sum(len(tensor._backward_hooks or ()) for tensor in module.parameters())
    return of_modules + of_tensors
