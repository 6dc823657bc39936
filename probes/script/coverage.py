"""Which modules of a program's model fire, how often, and with which values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module

from probes.errors import PlanError, ProbesError, RunError
from probes.forward_signature import forward_signature
from probes.plan.tree import Node, Tree
from probes.runner.program_events import phase_of
from probes.script.model_choice import ModelChoice, Models
from probes.script.model_finder import ModelFinder
from probes.signature import Signature
from probes.tensors import DTYPE_NAMES, in_backward, leaves


@dataclass
class ModuleCalls:
    """The calls of one module.

    Attributes:
        calls: how many there were.
        within: in how many outermost calls of the model it was called at all.
        most: most calls within one outermost call.
    """

    calls: int = 0
    within: int = 0
    most: int = 0


class WatchedEnough(BaseException):
    """The program was watched for as long as it was asked for; nothing of it goes on."""


class Coverage:
    """Counts the calls of every module of the model that a choice finds, and notes the shapes of its first call; nothing is stored.

    Modules inside a compiled region are not called one by one, and are not counted.

    Args:
        choice: which model is meant.
        passes: outermost calls after which `WatchedEnough` ends the program; without it nothing is stopped.

    Attributes:
        trees: the model's tree, or those of several by name, once found.
        outermost: how often the model was called.
        place: `file:line` of the first call.
        phase: `train` or `eval`, as the first call was made.
    """

    def __init__(self, choice: ModelChoice, passes: int | None = None) -> None:
        self.passes = passes
        self.finder = ModelFinder(choice, self._bind, self._refused)
        self.trees: dict[str, Tree] = {}
        self.outermost = 0
        self.place = ""
        self.phase = ""
        self.failure: ProbesError | None = None
        self._fired: dict[int, ModuleCalls] = {}
        self._values: dict[int, dict[str, Signature]] = {}
        self._open: Counter[int] = Counter()
        self._depth = 0
        self._handles: list[Any] = []

    def start(self) -> None:
        """Wait for the model."""
        self.finder.start()

    def stop(self) -> None:
        """Take everything back."""
        self.finder.stop()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def of(self, tree: Tree, node: Node) -> ModuleCalls:
        """The calls of a module."""
        return self._fired[id(tree.first(node).module)]

    def values(self, tree: Tree, node: Node) -> dict[str, Signature]:
        """The tensors that the module's first call took and gave, by leaf path such as `output.0`; empty where it never fired."""
        return self._values.get(id(tree.first(node).module), {})

    def verdict(self) -> ProbesError | None:
        """Why there is nothing to show, if so."""
        if self.trees:
            return None
        return self.failure or (self.finder.refusal() if self.finder.seen else RunError("the program called no model in this process"))

    def _refused(self, error: PlanError) -> None:
        self.failure = error

    def _bind(self, models: Models, place: str) -> None:
        self.place = place
        named: Mapping[str, Module] = models if isinstance(models, Mapping) else {"": models}
        self.trees = {name: Tree(model) for name, model in named.items()}
        for tree in self.trees.values():
            for node in tree.nodes.values():
                if id(node.module) not in self._fired:
                    self._fired[id(node.module)] = ModuleCalls()
                    self._watch(node)

    def _watch(self, node: Node) -> None:
        if node.scripted:
            return
        self._handles.append(node.module.register_forward_pre_hook(self._enter, prepend=True))
        self._handles.append(node.module.register_forward_hook(self._leave, with_kwargs=True, always_call=True))

    def _enter(self, module: Module, _args: object) -> None:
        if torch.compiler.is_compiling() or in_backward():
            return
        self._depth += 1
        self.phase = self.phase or phase_of(module)
        self._open[id(module)] += 1

    def _leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> None:
        if torch.compiler.is_compiling() or in_backward():
            return
        if id(module) not in self._values:
            self._values[id(module)] = _signatures(module, args, kwargs, output)
        self._depth -= 1
        if self._depth:
            return
        self.outermost += 1
        for key, calls in self._open.items():
            fired = self._fired[key]
            fired.calls += calls
            fired.within += 1
            fired.most = max(fired.most, calls)
        self._open.clear()
        if self.passes is not None and self.outermost >= self.passes:
            raise WatchedEnough


def _signatures(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> dict[str, Signature]:
    """What is known of each tensor that goes into a call and comes out of it."""
    names, rest, _ = forward_signature(module)
    inputs = {**dict(zip(names, args, strict=False)), **({rest or "args": args[len(names) :]} if len(args) > len(names) else {}), **kwargs}
    found = [*leaves(inputs, "input"), *leaves(output, "output")]
    return {leaf: Signature(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape)) for leaf, tensor in found}
