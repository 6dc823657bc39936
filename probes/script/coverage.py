"""Count the calls of every module of the model that a script trains; nothing is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module

from probes.errors import PlanError, ProbesError, RunError
from probes.hooks.capture.model_copies import HookOfOurs, clean_copies
from probes.hooks.capture.tracing import is_traced, is_transformed, outside_modes, runs_eagerly
from probes.plan.reachable import ReachableTensor, reachable
from probes.plan.tree import Node, Tree
from probes.runner.program_events import phase_of
from probes.script.model.choice import Candidate, ModelChoice
from probes.script.model.finder import ModelFinder
from probes.script.operation_listing import ListedOperation, OperationListing
from probes.signature import Signature
from probes.tensors import in_backward
from probes.value_path import forward_signature

MOST_UNTRAINED = 100  # number of calls of a model without an optimizer step after which one pass has been seen enough


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
    """Raised to end the program when it was watched long enough."""


class ModelCalls(HookOfOurs):
    """Counts the calls of every module of one model, and records the shapes of its first call.

    Modules inside a compiled region are not called one by one, and are not counted.

    Args:
        model: the model.
        place: `file:line` of its first call.
        called: called after each outermost call.
        ops: whether to list the torch functions that each module calls.

    Attributes:
        outermost: how often the model was called.
        phases: outermost calls by phase, `train` or `eval`.
    """

    def __init__(self, model: Module, place: str, called: Callable[[], None], *, ops: bool = False) -> None:
        self.tree = Tree(model)
        self.place = place
        self.called = called
        self.outermost = 0
        self.phases: Counter[str] = Counter()
        self.fired = {id(node.module): ModuleCalls() for node in self.tree.nodes.values()}
        self.reached: dict[int, dict[str, ReachableTensor]] = {}
        self._open: Counter[int] = Counter()
        self._depth = 0
        self._handles: list[Any] = []
        self.listing = OperationListing(self.reached) if ops else None

    def start(self) -> None:
        """Begin to count."""
        modules = {id(node.module): node for node in self.tree.nodes.values()}  # a shared module has several paths
        for node in modules.values():
            if not node.scripted:
                self._handles.append(node.module.register_forward_pre_hook(self._enter, prepend=True))
                self._handles.append(node.module.register_forward_hook(self._leave, with_kwargs=True, always_call=True))

    def stop(self) -> None:
        """Take every hook off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @runs_eagerly
    def _enter(self, module: Module, _args: object) -> None:
        if _is_overlooked():
            return
        if not self._depth:
            self.phases[phase_of(self.tree.root.module)] += 1
            if self.listing is not None:
                self.listing.__enter__()  # type: ignore[no-untyped-call]  # untyped in torch
        self._depth += 1
        self._open[id(module)] += 1

    @runs_eagerly
    def _leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> None:
        if _is_overlooked():
            return
        if id(module) not in self.reached:
            self.reached[id(module)] = _reached(module, args, kwargs, output)
        self._depth -= 1
        if self._depth:
            return
        if self.listing is not None:
            self.listing.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # untyped in torch
        self.outermost += 1
        for key, calls in self._open.items():
            fired = self.fired[key]
            fired.calls += calls
            fired.within += 1
            fired.most = max(fired.most, calls)
        self._open.clear()
        self.called()


class Coverage:
    """Counts the calls of the candidates of a choice until it is known which one is meant.

    Args:
        choice: which model is meant.
        brief: end the program with `WatchedEnough` once the model is known and was called.
        ops: list the torch functions that each module calls.

    Attributes:
        models: the counts of the model, or of several by name, once it is known which is meant.
        failure: what the program was stopped with.
    """

    def __init__(self, choice: ModelChoice, *, brief: bool = False, ops: bool = False) -> None:
        self.brief = brief
        self.ops = ops
        self.finder = ModelFinder(choice, self)
        self.models: dict[str, ModelCalls] = {}
        self.failure: ProbesError | None = None
        self._candidates: dict[Candidate, dict[str, ModelCalls]] = {}

    def start(self) -> None:
        """Wait for the model."""
        clean_copies.start()
        self.finder.start()

    def stop(self) -> None:
        """Remove all hooks; if no optimizer step has selected the model, take the only one."""
        self.brief = False
        try:
            self.finder.at_end()
        except PlanError as error:
            self.failure = self.failure or error
        self.finder.census.capture(tree.model for tree in self.trees.values())
        self.finder.stop()
        for counts in self._candidates.values():
            _stop(counts)
        clean_copies.stop()

    @property
    def trees(self) -> dict[str, Tree]:
        """The model's tree, or those of several by name."""
        return {name: counts.tree for name, counts in self.models.items()}

    @property
    def outermost(self) -> int:
        """How often the models were called."""
        return sum(counts.outermost for counts in self.models.values())

    @property
    def place(self) -> str:
        """`file:line` of the first call."""
        return next((counts.place for counts in self.models.values()), "")

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases of all calls, `train` first."""
        found: Counter[str] = sum((counts.phases for counts in self.models.values()), Counter())
        return tuple(sorted(found, reverse=True))

    def calls(self, name: str) -> ModelCalls:
        """The counts of one model."""
        return self.models[name]

    def of(self, tree: Tree, node: Node) -> ModuleCalls:
        """The calls of a module."""
        return self._of(tree).fired[id(tree.first(node).module)]

    def values(self, tree: Tree, node: Node) -> dict[str, Signature]:
        """The input and output tensors of the module's first call, by leaf path such as `output.0`; empty if it was not called."""
        return {leaf: found.signature for leaf, found in self.reached(tree, node).items() if not found.keys}

    def reached(self, tree: Tree, node: Node) -> dict[str, ReachableTensor]:
        """The same with tensors that only a path through attributes reaches."""
        return self._of(tree).reached.get(id(tree.first(node).module), {})

    def operations(self, tree: Tree, node: Node) -> list[ListedOperation]:
        """The torch functions that the module called in its own forward, in its first call."""
        listing = self._of(tree).listing
        return listing.found.get(id(tree.first(node).module), []) if listing is not None else []

    def _of(self, tree: Tree) -> ModelCalls:
        return next(counts for counts in self.models.values() if counts.tree is tree)

    def verdict(self) -> ProbesError | None:
        """The reason why there is nothing to show, if there is one."""
        if self.models or self.failure:
            return self.failure
        return self.finder.refusal() if self.finder.census.models else RunError("the program called no model in this process")

    # Events of the finder

    def candidate_called(self, candidate: Candidate) -> None:
        """Begin to count the calls of a candidate."""
        counts = {name: ModelCalls(model, candidate.place, self._called, ops=self.ops) for name, model in candidate.models.items()}
        self._candidates[candidate] = counts
        for one in counts.values():
            one.start()

    def candidate_chosen(self, candidate: Candidate) -> None:
        """Continue with one candidate only."""
        for other, counts in self._candidates.items():
            if other is not candidate:
                _stop(counts)
        self.models = self._candidates[candidate]
        if self.brief and self._all_called():
            raise WatchedEnough

    def refused(self, error: PlanError) -> None:
        """Record the error that stops the program."""
        self.failure = error

    def _called(self) -> None:
        """An outermost call has returned."""
        if not self.brief:
            return
        untrained = sum(counts.outermost for counts in next(iter(self._candidates.values())).values())
        if self._all_called() or (len(self._candidates) == 1 and untrained >= MOST_UNTRAINED):
            raise WatchedEnough

    def _all_called(self) -> bool:
        return bool(self.models) and all(counts.outermost for counts in self.models.values())


def _stop(counts: dict[str, ModelCalls]) -> None:
    for one in counts.values():
        one.stop()


def _is_overlooked() -> bool:
    return torch.compiler.is_compiling() or in_backward() or is_transformed() or is_traced()


def _reached(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> dict[str, ReachableTensor]:
    """The facts on each input and output tensor of a call."""
    names, rest, _ = forward_signature(module.forward)
    inputs = {**dict(zip(names, args, strict=False)), **({rest or "args": args[len(names) :]} if len(args) > len(names) else {}), **kwargs}
    with outside_modes():  # else the copies for a trial count as operations of the model
        return reachable(inputs, "input") | reachable(output, "output")
