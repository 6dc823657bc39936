"""Choosing the model of a script: the module that a spec means, among those that the script calls.

The model is the one whose parameters an optimizer steps, never just the first that is called. Until an optimizer has stepped one
of them every module that fits is a candidate.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from torch.nn import Module

from probes.errors import PlanError, Problem
from probes.plan.tree import innermost
from probes.script.model.model_rules import UNNAMED, FittingModule, ModelRule, ModulesByClass
from probes.script.model.module_parents import ModuleParents, is_called
from probes.spec import LoadedSpec
from probes.spec.models import ModelSelector

MOST_CANDIDATES = 8  # limit: each has hooks and a journal; the spec must name the model of a script with more

Models = Module | Mapping[str, Module]


@dataclass(eq=False)
class Candidate:
    """Modules that fit a spec and may be the intended ones.

    Attributes:
        models: the modules by the names of the spec; one module without a name if the spec names none.
        place: `file:line` of the first call.
        trained: the names of those whose parameters an optimizer has stepped.
    """

    models: Mapping[str, Module]
    place: str
    trained: set[str] = field(default_factory=set)

    @property
    def model(self) -> Models:
        """The module, or several by name, as `attach` takes them."""
        return self.models.get(UNNAMED, self.models)

    def holds(self, other: Candidate) -> bool:
        """Whether every module of another candidate is part of the module with the same name here."""
        pairs = [(self.models[name], module) for name, module in other.models.items()]
        return other is not self and all(any(part is module for part in whole.modules()) for whole, module in pairs)

    def __str__(self) -> str:
        kinds = ", ".join(type(innermost(module)).__name__ for module in self.models.values())
        return f"{kinds} (first called at {self.place})"


class ModelChoice:
    """The candidates that a script has shown, and the one that it trains.

    Args:
        rule: says which modules may be meant.
        selectors: which instance of its class a name means, if the spec says so.

    Attributes:
        candidates: in the order of their first calls.
        chosen: the one that is meant, once that is known.
        left_out: how many candidates beyond the limit there were.
    """

    def __init__(self, rule: ModelRule, selectors: Mapping[str, ModelSelector] | None = None) -> None:
        self.rule = rule
        self.selectors = dict(selectors or {})
        self.candidates: list[Candidate] = []
        self.chosen: Candidate | None = None
        self.left_out = 0
        self._instances: dict[str, list[weakref.ref[Module]]] = {name: [] for name in rule.names}
        self._meant: dict[str, list[weakref.ref[Module]]] = {name: [] for name in rule.names}

    def called(self, line: list[Module], parents: ModuleParents, place: str) -> list[Candidate]:
        """The candidates that a call reveals.

        Args:
            line: the module that is called, last, and the modules above it, the topmost first.
            parents: what is known about other modules.
            place: `file:line` of the call.

        Raises:
            PlanError: two names of the spec mean the module.
        """
        matches = self.rule.matches(line)
        fresh = [name for name, module in matches.items() if self._is_meant(name, module)]
        self._refuse_one_for_two(fresh, matches, place)
        found: list[Candidate] = []
        for name in fresh:
            options = [[matches[name]] if name == other else self._options(other, matches[name], parents) for other in self.rule.names]
            for modules in product(*options):
                models = dict(zip(self.rule.names, modules, strict=True))
                differ = len({id(innermost(module)) for module in modules}) == len(modules)
                if differ and not any(_same(models, known.models) for known in (*self.candidates, *found)):
                    found.append(Candidate(models, place))
        room = max(0, MOST_CANDIDATES - len(self.candidates))
        self.left_out += len(found[room:])
        self.candidates += found[:room]
        if self.selectors and all(selector.instance is not None for selector in self.selectors.values()):
            self.chosen = next((candidate for candidate in self.candidates if self._is_called(candidate)), None)
        return found[:room]

    def is_known(self, line: list[Module]) -> bool:
        """Whether a module that may be meant is called, so that no module within the call is."""
        known = [id(module) for candidate in self.candidates for module in candidate.models.values()]
        return any(id(module) in known for module in line)

    def _is_meant(self, name: str, module: Module) -> bool:
        """Whether a module is a new instance that the spec may mean."""
        known = self._instances[name]
        if any((one := reference()) is not None and innermost(one) is innermost(module) for reference in known):
            return False
        number = len(known)
        known.append(weakref.ref(module))
        if self._instance(name) not in (None, number):
            return False
        self._meant[name].append(weakref.ref(module))
        return True

    def _instance(self, name: str) -> int | None:
        """The number of the instance that a name means, if the spec says it."""
        selector = self.selectors.get(name) or (next(iter(self.selectors.values())) if name == UNNAMED and self.selectors else None)
        return selector.instance if selector is not None else None

    def _refuse_one_for_two(self, fresh: Sequence[str], matches: Mapping[str, Module], place: str) -> None:
        """Refuse names of one class that the spec does not tell apart: nothing that the program does shows which instance each one means.

        Raises:
            PlanError: there are such names.
        """
        for name, other in combinations(fresh, 2):
            one, kind = self.selectors[name], type(innermost(matches[name])).__name__
            if matches[name] is matches[other] and (one.class_, one.instance) == (
                self.selectors[other].class_,
                self.selectors[other].instance,
            ):
                message = f"models `{name}` and `{other}` both mean the same {kind} (first called at {place})"
                line = f"models: {{{name}: {{class: {one.class_}, instance: 0}}, {other}: {{class: {one.class_}, instance: 1}}}}"
                raise PlanError([Problem("ambiguous-model", message, f"number them in the order of their first calls, such as `{line}`")])

    def _options(self, name: str, taken: Module, parents: ModuleParents) -> list[Module]:
        """The modules that a name can mean other than the one that the other name means: those called, else the only uncalled one."""
        called = [module for reference in self._meant[name] if (module := reference()) is not None]
        others = [module for module in called if innermost(module) is not innermost(taken)]
        if others or self._instance(name) not in (None, len(self._instances[name])):
            return others
        known = [innermost(module) for reference in self._instances[name] if (module := reference()) is not None]
        built = [module for module in self.rule.built(name, parents) if all(innermost(module) is not one for one in known)]
        return built if len(built) == 1 else []

    def _is_called(self, candidate: Candidate) -> bool:
        """Whether the program has called each module of a candidate."""
        called = {name: [reference() for reference in references] for name, references in self._meant.items()}
        return all(any(one is module for one in called[name]) for name, module in candidate.models.items())

    @property
    def wants_all(self) -> bool:
        """Whether every trained instance is meant."""
        return wants_all(self.selectors)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The reason why nothing fits: that of the rule, and instances that were never called."""
        missing = []
        for name, called in self._instances.items() if self.selectors else ():
            meant = name or next(iter(self.selectors))
            selector, count = self.selectors[meant], len(called)
            if selector.instance is not None and 0 < count <= selector.instance:
                instances = "1 instance" if count == 1 else f"{count} instances"
                message = f"model `{meant}`: the script called {instances} of class `{selector.class_}`"
                missing.append(Problem("model-not-called", f"{message}; the spec selects instance {selector.instance}, counted from 0"))
        return (*self.rule.problems, *missing)

    def stepped(self, held: set[int]) -> bool:
        """Record an optimizer step; return whether it adds information.

        Args:
            held: ids of its parameters.
        """
        news = False
        for candidate in self.candidates:
            for name, module in candidate.models.items():
                if name not in candidate.trained and any(id(parameter) in held for parameter in module.parameters()):
                    candidate.trained.add(name)
                    news = True
        return news

    def decide(self) -> Candidate | None:
        """The intended candidate, as soon as the optimizer steps show it.

        Raises:
            PlanError: one optimizer steps several of them.
        """
        if self.chosen is None and any(candidate.trained for candidate in self.candidates):
            left = self._trained()
            if len(left) == 1 or (left and self.wants_all):
                self.chosen = left[0]
            elif self._is_ambiguous(left):
                raise self.refusal("optimizers step several of them")
        return self.chosen

    def _trained(self) -> list[Candidate]:
        """The candidates that are consistent with all steps: each has a stepped module wherever another has one."""
        left = self.candidates
        for name in self.rule.names:
            if any(name in candidate.trained for candidate in left):
                left = [candidate for candidate in left if name in candidate.trained]
        return [candidate for candidate in left if not any(other.holds(candidate) for other in left)]

    def _is_ambiguous(self, left: list[Candidate]) -> bool:
        """Whether further steps cannot distinguish the candidates."""
        names = [name for name in self.rule.names if len({id(candidate.models[name]) for candidate in left}) > 1]
        return all(name in candidate.trained for candidate in left for name in names)

    def at_end(self) -> Candidate | None:
        """The candidate to take if no optimizer step has selected one; None if there is none.

        Raises:
            PlanError: there are several, or the spec wants one that is trained.
        """
        if self.chosen is not None or not self.candidates:
            return self.chosen
        left = self._trained()
        wants_training = any(selector.trained for selector in self.selectors.values())
        if wants_training and not all(set(candidate.trained) == set(candidate.models) for candidate in left):
            raise self.refusal("the spec says `trained: true`, and no optimizer stepped one of them")
        if len(left) > 1 or self.left_out:
            raise self.refusal(
                "no optimizer stepped one of them" if not any(one.trained for one in left) else "optimizers do not tell them apart"
            )
        self.chosen = left[0]
        return self.chosen

    def refusal(self, why: str) -> PlanError:
        """The error for a script with an ambiguous model, with the line to write."""
        listed = "; ".join(map(str, self.candidates)) + (f" and {self.left_out} more" if self.left_out else "")
        message = f"{len(self.candidates) + self.left_out} modules of the script fit the spec, and {why}: {listed}"
        return PlanError([Problem("ambiguous-model", message, f"select one, such as `models: {{{self._line()}}}`")])

    def _line(self) -> str:
        """The selection in a spec that means the last of the remaining candidates."""
        last = self._trained()[-1]
        parts = []
        for name, module in last.models.items():
            kind = type(innermost(module)).__name__
            called = [one for reference in self._instances[name] if (one := reference()) is not None and is_called(one, kind)]
            number = next((number for number, one in enumerate(called) if innermost(one) is innermost(module)), 0)
            parts.append(f"{name or 'model'}: " + (f"{{class: {kind}, instance: {number}}}" if len(called) > 1 else kind))
        return ", ".join(parts)


def wants_all(selectors: Mapping[str, ModelSelector]) -> bool:
    """Whether a spec means every instance that is trained."""
    return any(selector.instances == "all" for selector in selectors.values())


def choice_for(loaded: LoadedSpec) -> ModelChoice:
    """The choice that a spec asks for."""
    selectors = loaded.spec.model_selectors
    if not selectors:
        return ModelChoice(FittingModule(loaded))
    classes = {name: selector.class_ for name, selector in selectors.items()}
    single = len(classes) == 1 and all(probe.model is None for probe in loaded.spec.probes.values()) and loaded.spec.clock.model is None
    return ModelChoice(ModulesByClass(classes, single), selectors)


def _same(models: Mapping[str, Module], others: Mapping[str, Module]) -> bool:
    return all(innermost(module) is innermost(others[name]) for name, module in models.items())


def trees(models: Models) -> Iterator[Module]:
    """The models as a list, whether there is one or several."""
    yield from models.values() if isinstance(models, Mapping) else (models,)
