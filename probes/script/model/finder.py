"""Finding the modules that a spec means among those that a script calls, by the optimizer steps of the script."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from threading import RLock, get_ident
from typing import Protocol

import torch
from torch.nn import Module
from torch.optim import Optimizer

from probes.errors import PlanError, Problem
from probes.hooks.capture import compiled
from probes.hooks.capture.tracing import breaks_graph, is_traced, is_transformed
from probes.plan.tree import innermost
from probes.runner.program_frames import is_part_of_a_step
from probes.runner.watch.backward_watch import backward_watch
from probes.runner.watch.call_watch import NO_NUMBERS, CallNumbers, call_watch
from probes.runner.watch.loader_watch import loader_watch
from probes.runner.watch.process_hooks import optimizer_begins, optimizer_stepped
from probes.script.model.call_place import call_place, is_being_built
from probes.script.model.census import CalledModel, ModelCensus, described
from probes.script.model.choice import Candidate, ModelChoice
from probes.script.model.model_rules import has_parameters
from probes.script.model.module_parents import ModuleParents
from probes.tensors import in_backward

MOST_BARE = 8  # limit of modules without parameters that are named if nothing fits


class FinderListener(Protocol):
    """The listener of a finder."""

    def candidate_called(self, candidate: Candidate) -> None:
        """A candidate is called for the first time; that call has not begun."""

    def candidate_chosen(self, candidate: Candidate) -> None:
        """It is known which candidate is meant."""

    def refused(self, error: PlanError) -> None:
        """The program is about to be stopped by this error."""


class ModelFinder:
    """Listens to calls of modules and to steps of optimizers until it is known which modules a spec means.

    Args:
        choice: says which modules may be meant, and which are.
        listener: receives them.

    Attributes:
        census: every model that the program calls, also after the choice.
        settled: whether the listener knows which candidate is selected.
    """

    def __init__(self, choice: ModelChoice, listener: FinderListener) -> None:
        self.choice = choice
        self.listener = listener
        self.parents = ModuleParents()
        self.census = CensusListener(self.parents)
        self._tried: dict[int, tuple[weakref.ref[Module], int, bool]] = {}
        self._heard: weakref.WeakKeyDictionary[Optimizer, tuple[int, int]] = weakref.WeakKeyDictionary()
        self.settled = False
        self._pid = os.getpid()
        self._step: Callable[[], None] | None = None
        self._looking = True
        self._binding = RLock()  # threads that call the same model wait until the first of them has bound it

    def start(self) -> None:
        """Begin to listen."""
        self.parents.start()
        call_watch.add(self)
        self.census.start()
        self._step = optimizer_begins.add(self._before_step)

    def stop(self) -> None:
        """Stop listening."""
        self._stop_looking()
        if self._step is not None:
            self._step()
            self._step = None
        self.census.stop()
        self.parents.stop()

    def _stop_looking(self) -> None:
        call_watch.remove(self)
        self._tried.clear()
        self._looking = False  # the hook on optimizers stays until `stop`: PyTorch iterates over these hooks while one of them runs

    def call_enters(self, module: Module) -> CallNumbers | None:
        """Check whether the call reveals a candidate; calls within a candidate are ignored."""
        if in_backward() or is_traced() or is_transformed():
            return NO_NUMBERS
        fits = self._known(module)
        if fits is None:
            with self._binding:
                fits = self._known(module)
                if fits is None:
                    fits = self._try(module)
        return NO_NUMBERS if fits else None

    def ignores(self, module: Module) -> bool:
        """Whether a module does not fit; `ModuleParents` makes the watch ask again after every registration."""
        return self._known(module) is False

    def _known(self, module: Module) -> bool | None:
        """Whether a module fits, as far as it was checked since the last registration."""
        tried, registrations, fits = self._tried.get(id(module), (None, -1, False))
        return fits if tried is not None and tried() is module and registrations == self.parents.registrations else None

    def _try(self, module: Module) -> bool:
        """Check whether the module, or a module around it, fits the spec, and report candidates."""
        line = self.parents.line(module)
        if is_being_built(line):
            return False
        try:
            fresh = self.choice.called(line, self.parents, call_place())
        except PlanError as error:
            self._stop_looking()
            self.listener.refused(error)
            raise
        fits = self.choice.is_known(line)
        for candidate in fresh:
            self.listener.candidate_called(candidate)
        for member in line[0].modules():
            self._tried[id(member)] = (weakref.ref(member), self.parents.registrations, fits)
        if self.choice.chosen is not None:
            self._settle(self.choice.chosen)
        return fits

    def call_leaves(self, *, raised: bool) -> None:
        """No effect."""

    @breaks_graph
    def _before_step(self, optimizer: Optimizer, *_args: object) -> None:
        """Learn from an optimizer that is about to step; fail before step 0 if the spec does not fit its model."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        if not self._looking or os.getpid() != self._pid or self._heard.get(optimizer) == (count, len(self.choice.candidates)):
            return
        self._heard[optimizer] = (count, len(self.choice.candidates))
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        try:
            with self._binding:
                self._learn(held)
        except PlanError as error:
            self._stop_looking()
            self.listener.refused(error)
            raise

    def _learn(self, held: set[int]) -> None:
        self.choice.stepped(held)
        chosen = self.choice.decide()
        if chosen is not None:
            self._settle(chosen)
        elif not self.choice.candidates and not self.choice.rule.patient:
            if self.census.holds(held):
                raise self.refusal()
            self._refuse_unseen(held)

    def _refuse_unseen(self, held: set[int]) -> None:
        """Refuse a model that is trained without an observed call: a compiled function calls it."""
        for module in self.parents.tops() if compiled.in_use() else ():
            if any(id(parameter) in held for parameter in module.parameters()) and self.choice.rule.matches([module]):
                kind = type(innermost(module)).__name__
                message = f"`{kind}` is trained, but only a compiled function calls it, and no probe sees those calls"
                hint = f"compile the model and not the function that calls it: `model = torch.compile({kind}(...))`"
                if compiled.DROPS_HOOKS:
                    hint = "leave out `torch.compile` in this run"  # this torch drops hooks from compiled models, too
                raise PlanError([Problem("no-model-fits", message, hint)])

    def _settle(self, chosen: Candidate) -> None:
        """Stop looking, unless every instance that is trained is meant."""
        if not self.choice.wants_all:
            self._stop_looking()
        if not self.settled:
            self.settled = True
            self.listener.candidate_chosen(chosen)

    def at_end(self) -> Candidate | None:
        """The intended candidate, if the program has ended without a decisive optimizer step.

        Raises:
            PlanError: there are several.
        """
        chosen = self.choice.at_end()
        if chosen is not None:
            self._settle(chosen)
        return chosen

    def further(self) -> list[CalledModel]:
        """Models that fit the spec, were trained, and are not captured."""
        captured = {model.kind for model in self.census.models if model.captured}
        return [model for model in self.census.models if self._is_further(model) and self._fits(model, captured)]

    def _is_further(self, model: CalledModel) -> bool:
        """Whether a model was trained and is not captured, by itself, as the model that has its parameters, or as part of another."""
        return bool(model.steps) and not model.captured and not model.shares and self.census.whole_of(model) is None

    def _fits(self, model: CalledModel, captured: set[str]) -> bool:
        root = model.root()
        return model.kind in captured or (root is not None and bool(self.choice.rule.matches([root])))

    def refusal(self) -> PlanError:
        """The error of a program in which nothing fits the spec: what the model that came closest lacks, or what was called."""
        seen = [str(model) for model in self.census.models] + [str(model) for model in self.census.bare]
        listed = "; ".join(seen[:8]) + (f" and {len(seen) - 8} more" if len(seen) > 8 else "")
        hint = "with `models: {NAME: CLASS}` the spec waits for a model of that class"
        if not self.choice.problems:
            return PlanError([Problem("no-model-fits", f"no model that the script calls fits the spec; it called {listed}", hint)])
        *first, last = self.choice.problems
        where = f"the script called {listed}" + (f"; {hint}" if len(seen) > 1 else "")
        return PlanError([*first, last.at(hint=f"{last.hint}; {where}" if last.hint else where)])


class CensusListener(ModelCensus):
    """The census of a running program: outermost calls, and finished steps of optimizers.

    Attributes:
        bare: modules without parameters that were called; they are not models, and not counted.
    """

    def __init__(self, parents: ModuleParents) -> None:
        super().__init__()
        self.parents = parents
        self.bare: list[CalledModel] = []
        self._roots: dict[int, tuple[weakref.ref[Module], int, CalledModel | None]] = {}
        self._step: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to count."""
        call_watch.add(self)
        self._step = optimizer_stepped.add(self._has_stepped)

    def stop(self) -> None:
        """Stop counting."""
        call_watch.remove(self)
        if self._step is not None:
            self._step()
            self._step = None

    @breaks_graph
    def _has_stepped(self, optimizer: Optimizer, *_args: object) -> None:
        if not is_part_of_a_step(optimizer, sys._getframe(2)):
            self.stepped(optimizer)

    def call_enters(self, module: Module) -> CallNumbers | None:
        """Count an outermost call; a module without parameters, such as a loss, may call others."""
        if in_backward() or is_traced() or is_transformed():
            return NO_NUMBERS
        if not self._is_known(module):
            root = self.parents.line(module)[0]
            self._roots[id(module)] = (weakref.ref(module), self.parents.registrations, self._model(root))
        _, _, model = self._roots[id(module)]
        if model is None:
            return None
        model.calls += 1
        loader_watch.model_called()
        if module.training and torch.is_grad_enabled():
            backward_watch.training.add(get_ident())
        return NO_NUMBERS

    def ignores(self, module: Module) -> bool:
        """Whether a module is part of nothing with parameters; `ModuleParents` makes the watch ask again after every registration."""
        return self._is_known(module) and self._roots[id(module)][2] is None

    def _is_known(self, module: Module) -> bool:
        """Whether the model of a module was searched since the last registration."""
        known, registrations, _ = self._roots.get(id(module), (None, -1, None))
        return known is not None and known() is module and registrations == self.parents.registrations

    def call_leaves(self, *, raised: bool) -> None:
        """Nothing follows."""

    def _model(self, root: Module) -> CalledModel | None:
        """The counts of a topmost module; None for one without parameters."""
        if type(root).__name__ == "GraphModule":  # a function that torch.compile wrapped
            return None
        if has_parameters(root):
            return self.of(root) or self.add(root, call_place())
        if len(self.bare) < MOST_BARE and not any(model.root() is root for model in self.bare):
            self.bare.append(described(root, call_place()))
        return None
