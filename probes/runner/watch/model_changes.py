"""Notices that modules or parameters of a model are replaced during a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

from torch.nn import Module
from torch.optim import Optimizer

from probes.hooks.capture.compiled import is_dynamo_compiling
from probes.plan.tree import Tree
from probes.runner.watch.call_watch import call_watch
from probes.runner.watch.process_hooks import module_assigned, parameter_assigned


class ModelChanges:
    """The parameters of the clock's models, and whether their trees are out of date.

    PyTorch reports an assignment to a module. It does not report a change of a module's tables, by which `Module.to` replaces
    parameters: an optimizer that steps none of the known parameters is then the sign.

    Attributes:
        found: whether something was replaced since the trees were read.
    """

    def __init__(self) -> None:
        self.found = False
        self._trees: list[Tree] = []
        self._clock_trees: list[Tree] = []
        self._owned: set[int] = set()
        self._owners: WeakSet[Optimizer] = WeakSet()  # and not the ids of replaced parameters, which other tensors may get
        self._others: WeakSet[Optimizer] = WeakSet()
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to listen."""
        self._ends = [module_assigned.add(self._module_assigned), parameter_assigned.add(self._parameter_assigned)]

    def stop(self) -> None:
        """Stop listening."""
        while self._ends:
            self._ends.pop()()

    def renew(self, trees: Iterable[Tree], clock_trees: Iterable[Tree], *, keep: bool) -> None:
        """Read the parameters of the models.

        Args:
            trees: the trees of all models, as they are now.
            clock_trees: those whose optimizers are events of the clock.
            keep: whether an optimizer that has stepped parameters that were replaced still counts.
        """
        self.found = False
        self._trees, self._clock_trees = list(trees), list(clock_trees)
        self._owned = self._parameters()
        if not keep:
            self._owners.clear()
        self._others.clear()
        call_watch.forget()

    def owns(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer steps a parameter of the clock's models."""
        if self._holds(optimizer):
            self._owners.add(optimizer)
            return True
        if optimizer in self._owners:
            return True
        if optimizer in self._others:
            return False
        if not self._parameters() <= self._owned:
            self._replaced()
            self._owned = self._parameters()
        owns = self._holds(optimizer)
        (self._owners if owns else self._others).add(optimizer)
        return owns

    def _holds(self, optimizer: Optimizer) -> bool:
        return any(id(parameter) in self._owned for group in optimizer.param_groups for parameter in group["params"])

    def _parameters(self) -> set[int]:
        return {id(parameter) for tree in self._clock_trees for parameter in tree.model.parameters()}

    def _module_assigned(self, module: Module, name: str, assigned: Module | None) -> None:
        if is_dynamo_compiling():
            self.found = True  # dynamo cannot trace the rest
        elif not self.found and module._modules.get(name) is not assigned and self._has(module):
            self._replaced()

    def _parameter_assigned(self, module: Module, name: str, assigned: Any) -> None:
        # FSDP registers the parameters that it has made again and again.
        if is_dynamo_compiling():
            self.found = True
        elif not self.found and module._parameters.get(name) is not assigned and id(assigned) not in self._owned and self._has(module):
            self._replaced()

    def _has(self, module: Module) -> bool:
        return any(id(module) in tree.owners for tree in self._trees)

    def _replaced(self) -> None:
        self.found = True
        self._others.clear()
        call_watch.forget()
