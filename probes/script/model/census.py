"""Every model that a script calls: how often, whether an optimizer steps it, and whether it is the one that is captured."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer

from probes.plan.tree import innermost
from probes.printable import counted


@dataclass(eq=False)
class CalledModel:
    """A topmost module that was called; or several of a class that were first called at one place and exist no more, as copies for a check.

    Attributes:
        kind: its class name, without wrappers such as that of `torch.compile`.
        modules: how many modules it has, without these.
        place: `file:line` of the first call.
        root: the module, held weakly; the first one of several.
        instances: how many there were.
        calls: outermost calls.
        steps: steps of optimizers that hold a parameter of it.
        captured: whether its values were captured.
        shares: whether all its parameters are those of a model that was called before, as in a shallow copy.
    """

    kind: str
    modules: int
    place: str
    root: weakref.ref[Module]
    instances: int = 1
    calls: int = 0
    steps: int = 0
    captured: bool = False
    shares: bool = False

    @property
    def passed(self) -> bool:
        """Whether it exists no more, and neither was trained nor captured."""
        return self.root() is None and not self.steps and not self.captured

    def __str__(self) -> str:
        return f"{self.kind} ({self.modules} {'module' if self.modules == 1 else 'modules'}, first called at {self.place})"


class ModelCensus:
    """Counts calls and optimizer steps of every model.

    Attributes:
        models: in the order of their first calls.
    """

    def __init__(self) -> None:
        self.models: list[CalledModel] = []
        self._by_id: dict[int, CalledModel] = {}
        self._gone: deque[int] = deque()  # ids of models that exist no more; filled by whichever thread drops the last reference
        self._passed: dict[tuple[str, str], CalledModel] = {}
        self._changes = 0
        self._adding = RLock()
        self._stepped: weakref.WeakKeyDictionary[Optimizer, tuple[tuple[int, int], list[CalledModel]]] = weakref.WeakKeyDictionary()

    def of(self, root: Module) -> CalledModel | None:
        """The record of a topmost module; its id may have been reused."""
        found = self._by_id.get(id(root))
        return found if found is not None and found.root() is root else None

    def add(self, root: Module, place: str) -> CalledModel:
        """Record a topmost module that is called for the first time."""
        found, address, gone = described(root, place), id(root), self._gone
        found.root = weakref.ref(root, lambda _: gone.append(address))
        with self._adding:
            self._merge_passed()
            self.models.append(found)
            self._by_id[address] = found
            self._changes += 1
        return found

    def _merge_passed(self) -> None:
        """Make one record of the models that exist no more, are of one class and place, and were neither trained nor captured.

        A program that calls thousands of copies of its model, one after the other or several at a time, has few records. Another thread
        may iterate over the list meanwhile: it is replaced, not changed.
        """
        while self._gone:
            model = self._by_id.pop(self._gone.popleft(), None)
            if model is None or not model.passed:
                continue
            earlier = self._passed.setdefault((model.kind, model.place), model)
            if earlier is not model:
                earlier.calls += model.calls
                earlier.instances += 1
                self.models = [one for one in self.models if one is not model]

    def holds(self, held: set[int]) -> bool:
        """Whether one of the models has a parameter among these ids."""
        roots = [root for model in self.models if (root := model.root()) is not None]
        return any(id(parameter) in held for root in roots for parameter in root.parameters())

    def capture(self, models: Iterable[Module]) -> None:
        """Mark the models that are captured: the trees with these modules."""
        meant = [id(module) for module in models]
        for model in self.models:
            root = model.root()
            model.captured |= root is not None and any(id(part) in meant for part in root.modules())

    def stepped(self, optimizer: Optimizer) -> None:
        """Count a step of an optimizer for the models that it changes."""
        held = sum(len(group["params"]) for group in optimizer.param_groups)
        known, owners = self._stepped.get(optimizer, ((-1, -1), []))
        if known != (held, self._changes):
            owners = list(self._owners(optimizer))
            _mark_views(owners)
            self._stepped[optimizer] = ((held, self._changes), owners)
        for model in owners:
            model.steps += 1

    def _owners(self, optimizer: Optimizer) -> Iterator[CalledModel]:
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for model in self.models:
            root = model.root()
            if root is not None and any(id(parameter) in held for parameter in root.parameters()):
                yield model

    def lines(self, word: str = "captured") -> list[str]:
        """A line for each model.

        Args:
            word: what was done with the model that was chosen.
        """
        listed = list(self._listed())
        rows = [(_named(model), f"first called at {model.place}", counted(model.calls, "call"), _steps(model)) for model in listed]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
        wholes = {id(model): self.whole_of(model) for model in listed if not model.captured}
        captured = [_state(word, model, wholes.get(id(model))) for model in listed]
        return [
            "model  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), state])
            for row, state in zip(rows, captured, strict=True)
        ]

    def _listed(self) -> Iterator[CalledModel]:
        """The models, those as one that were neither trained nor captured and are of one class and place."""
        alike: dict[tuple[str, str], list[CalledModel]] = {}
        for model in self.models:
            if not model.steps and not model.captured:
                alike.setdefault((model.kind, model.place), []).append(model)
        for model in self.models:
            same = [model] if model.steps or model.captured else alike[model.kind, model.place]
            if same[0] is model:
                calls, instances = sum(one.calls for one in same), sum(one.instances for one in same)
                yield replace(model, calls=calls, instances=instances)

    def whole_of(self, model: CalledModel) -> CalledModel | None:
        """The captured model that a model has become a part of, such as a backbone that was called alone before."""
        root = model.root()
        if root is None:
            return None
        captured = ((one, one.root()) for one in self.models if one.captured)
        return next((one for one, other in captured if other is not None and any(part is root for part in other.modules())), None)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Plain data."""
        return [
            {
                "class": model.kind,
                "instances": model.instances,
                "first_call": model.place,
                "calls": model.calls,
                "optimizer_steps": model.steps,
                "captured": model.captured,
            }
            for model in self._listed()
        ]


def described(root: Module, place: str) -> CalledModel:
    """A topmost module that is called for the first time."""
    inner = innermost(root)  # the plan names this one, too
    return CalledModel(type(inner).__name__, sum(1 for _ in inner.modules()), place, weakref.ref(root))


def _mark_views(models: Sequence[CalledModel]) -> None:
    """Mark the models whose parameters all belong to one that was called before."""
    earlier: list[set[int]] = []
    for model in models:
        root = model.root()
        own = set() if root is None else {id(parameter) for parameter in root.parameters()}
        model.shares = bool(own) and any(own <= other for other in earlier)
        earlier.append(own)


def _state(word: str, model: CalledModel, whole: CalledModel | None) -> str:
    if whole is not None:
        return f"part of {whole.kind}"
    return word if model.captured else f"not {word}"


def _named(model: CalledModel) -> str:
    return model.kind if model.instances == 1 else f"{model.kind} ({model.instances} instances)"


def _steps(model: CalledModel) -> str:
    return counted(model.steps, "optimizer step") if model.steps else "no optimizer step"
