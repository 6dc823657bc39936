"""Choosing the model: the tree that a spec fits, among those that a program calls."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch.nn import Module

from probes.errors import PlanError, Problem
from probes.plan import Plan, resolve
from probes.script.module_parents import ModuleParents, is_called
from probes.spec import LoadedSpec


@dataclass(frozen=True)
class CalledTree:
    """A tree that was called and looked at.

    Attributes:
        kind: class name of its topmost module.
        modules: how many modules it has.
        place: `file:line` of the call.
        root: the topmost module, held weakly.
    """

    kind: str
    modules: int
    place: str
    root: weakref.ref[Module]

    def __str__(self) -> str:
        return f"{self.kind} ({self.modules} {'module' if self.modules == 1 else 'modules'}, called at {self.place})"


Models = Module | Mapping[str, Module]


class ModelChoice(Protocol):
    """Says which of the trees around a call is meant."""

    def of(self, line: list[Module], parents: ModuleParents) -> Models | None:
        """The model or models, or None where this call does not tell.

        Args:
            line: the module that is called, last, and the modules above it, the topmost first.
            parents: all that is known of other modules.
        """

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why the tree that came closest was not chosen."""

    @property
    def patient(self) -> bool:
        """Whether the spec says what it waits for, so that other models may train before."""


@dataclass
class FittingTree:
    """The topmost tree that resolves every path of a spec.

    A tree without parameters, such as a row of image transforms, is a model only where the spec names one of its
    modules: any pattern would match there.
    """

    loaded: LoadedSpec
    patient: bool = False
    _closest: tuple[tuple[int, int], tuple[Problem, ...]] | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of the tree with the fewest; the largest one among equals."""
        return self._closest[1] if self._closest else ()

    def of(self, line: list[Module], parents: ModuleParents) -> Models | None:
        """The first that fits, from the top."""
        return next((module for module in line if self._fits(module)), None)

    def _fits(self, module: Module) -> bool:
        try:
            plan = resolve(self.loaded, module)
        except PlanError as error:
            rank = (len(error.problems), -sum(1 for _ in module.modules()))
            if self._closest is None or rank < self._closest[0]:
                self._closest = (rank, error.problems)
            return False
        return has_parameters(module) or _is_named(plan)


@dataclass
class ModelsByClass:
    """Models of the classes that a spec names."""

    classes: Mapping[str, str]
    found: dict[str, weakref.ref[Module]] = field(default_factory=dict)
    patient: bool = True

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The classes of which no instance was called."""
        return tuple(
            Problem("model-not-called", f"model `{name}`: no instance of class `{kind}` was called", path=f"models.{name}")
            for name, kind in self.classes.items()
            if self._get(name) is None
        )

    def of(self, line: list[Module], parents: ModuleParents) -> Models | None:
        """All models at once, as soon as one of them is called and the others are known."""
        for name, kind in self.classes.items():
            match = next((module for module in line if is_called(module, kind)), None)
            if match is not None and self._get(name) is None:
                self.found[name] = weakref.ref(match)
        if not any(self._get(name) is not None for name in self.classes):
            return None
        models = {name: self._get(name) or _only(kind, parents) for name, kind in self.classes.items()}
        complete = {name: model for name, model in models.items() if model is not None}
        return complete if len(complete) == len(models) else None

    def _get(self, name: str) -> Module | None:
        reference = self.found.get(name)
        return reference() if reference is not None else None


def _only(kind: str, parents: ModuleParents) -> Module | None:
    """The one module of a class that was built but not called yet, out to its wrappers."""
    tops = {}
    for module in parents.of_class(kind):
        top = next(above for above in parents.line(module) if is_called(above, kind))
        tops[id(top)] = top
    return next(iter(tops.values())) if len(tops) == 1 else None


class TreeWithParameters:
    """The topmost tree that has parameters, for a look at a program without a spec."""

    problems: tuple[Problem, ...] = ()
    patient = True

    def of(self, line: list[Module], parents: ModuleParents) -> Models | None:
        """The top of the line, where it has parameters."""
        return line[0] if has_parameters(line[0]) else None


def choice_for(loaded: LoadedSpec) -> ModelChoice:
    """The way of choosing that a spec asks for."""
    classes = {name: selector.class_ for name, selector in loaded.spec.model_selectors.items()}
    return ModelsByClass(classes) if classes else FittingTree(loaded)


def has_parameters(module: Module) -> bool:
    """Whether there is a parameter anywhere in a tree."""
    return any(True for _ in module.parameters())


def _is_named(plan: Plan) -> bool:
    return any(binding.exact for binding in plan.bindings)


def trees(models: Models) -> Iterator[Module]:
    """The models, whether one or several."""
    yield from models.values() if isinstance(models, Mapping) else (models,)


def refusal(problems: tuple[Problem, ...], seen: list[CalledTree]) -> PlanError:
    """The error of a program in which nothing fits the spec.

    Args:
        problems: those of the tree that came closest.
        seen: the trees that were called.
    """
    listed = "; ".join(str(one) for one in seen[:8]) + (f" and {len(seen) - 8} more" if len(seen) > 8 else "")
    hint = "with `models: {NAME: CLASS}` the spec waits for a model of that class"
    message = f"no model that the program calls fits the spec; it called {listed}"
    return PlanError([*problems, Problem("no-model-fits", message, hint)])
