"""Rules for the model of a spec: the module that fits its paths, modules of classes, or any module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch.nn import Module

from probes.errors import PlanError, Problem
from probes.plan import Plan, resolve
from probes.script.model.module_parents import ModuleParents, is_called
from probes.spec import LoadedSpec

UNNAMED = ""


class ModelRule(Protocol):
    """Decides which modules around a call may be the model."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models; one empty name if the spec names none."""

    def matches(self, line: list[Module]) -> Mapping[str, Module]:
        """The modules that may be meant, by name.

        Args:
            line: the module that is called, last, and the modules above it, the topmost first.
        """

    def built(self, name: str, parents: ModuleParents) -> list[Module]:
        """The modules that a name can mean, also before they are called, as far as they are known."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The reason why the best tree does not fit."""

    @property
    def patient(self) -> bool:
        """Whether the spec names its model, so that other models may train before."""


@dataclass
class FittingModule:
    """The topmost tree in which every path of a spec resolves.

    A tree without parameters, such as a row of image transforms, is a model only if the spec names one of its
    modules: any pattern would match there.
    """

    loaded: LoadedSpec
    patient: bool = False
    names: tuple[str, ...] = (UNNAMED,)
    _closest: tuple[tuple[int, int], tuple[Problem, ...]] | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of the tree with the fewest problems; of several, those of the largest tree."""
        return self._closest[1] if self._closest else ()

    def matches(self, line: list[Module]) -> Mapping[str, Module]:
        found = next((module for module in line if self._fits(module)), None)
        return {} if found is None else {UNNAMED: found}

    def built(self, name: str, parents: ModuleParents) -> list[Module]:
        return []

    def _fits(self, module: Module) -> bool:
        try:
            plan = resolve(self.loaded, module, {})
        except PlanError as error:
            rank = (len(error.problems), -sum(1 for _ in module.modules()))
            if self._closest is None or rank < self._closest[0]:
                self._closest = (rank, error.problems)
            return False
        return has_parameters(module) or _is_named(plan)


@dataclass
class ModulesByClass:
    """Modules of the classes that a spec names.

    Args:
        classes: name of the model -> name of its class.
        single: whether the spec has one model, which its probes do not name.
    """

    classes: Mapping[str, str]
    single: bool = False
    patient: bool = True
    called: set[str] = field(default_factory=set)

    @property
    def names(self) -> tuple[str, ...]:
        return (UNNAMED,) if self.single else tuple(self.classes)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The classes of which no instance was called."""
        return tuple(
            Problem("model-not-called", f"model `{name}`: no instance of class `{kind}` was called", path=f"models.{name}")
            for name, kind in self.classes.items()
            if self._key(name) not in self.called
        )

    def matches(self, line: list[Module]) -> Mapping[str, Module]:
        found = {}
        for name, kind in self.classes.items():
            module = next((module for module in line if is_called(module, kind)), None)
            if module is not None:
                found[self._key(name)] = module
        self.called |= found.keys()
        return found

    def built(self, name: str, parents: ModuleParents) -> list[Module]:
        kind = self.classes[name] if name else next(iter(self.classes.values()))
        tops = {}
        for module in parents.of_class(kind):
            top = next(above for above in parents.line(module) if is_called(above, kind))
            tops[id(top)] = top
        return list(tops.values())

    def _key(self, name: str) -> str:
        return UNNAMED if self.single else name


class AnyModule:
    """The topmost tree with parameters, for watching a program without a spec."""

    names = (UNNAMED,)
    problems: tuple[Problem, ...] = ()
    patient = True

    def matches(self, line: list[Module]) -> Mapping[str, Module]:
        return {UNNAMED: line[0]} if has_parameters(line[0]) else {}

    def built(self, name: str, parents: ModuleParents) -> list[Module]:
        return []


def has_parameters(module: Module) -> bool:
    """Whether a tree has parameters."""
    return any(True for _ in module.parameters())


def _is_named(plan: Plan) -> bool:
    return any(binding.exact for binding in plan.bindings)
