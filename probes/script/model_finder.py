"""Watching a program's module calls until the model has been found."""

from __future__ import annotations

import os
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from probes.errors import PlanError
from probes.runner.call_watch import call_watch
from probes.script.model_choice import CalledTree, ModelChoice, Models, refusal
from probes.script.module_parents import ModuleParents

INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
Bind = Callable[[Models, str], None]


class ModelFinder:
    """Listens to the calls of modules until a tree is chosen; the run that it is bound to hears of that very call.

    Args:
        choice: says which tree it is.
        bind: called with the model, or the models by name, and `file:line` of the call.
        refuse: called with the error before the program is stopped because no model fits.
    """

    def __init__(self, choice: ModelChoice, bind: Bind, refuse: Callable[[PlanError], None]) -> None:
        self.choice = choice
        self.bind = bind
        self.refuse = refuse
        self.parents = ModuleParents()
        self.seen: list[CalledTree] = []
        self.bound = False
        self._tried: dict[int, tuple[weakref.ref[Module], int]] = {}
        self._pid = os.getpid()
        self._step: Any = None

    def start(self) -> None:
        """Begin to listen."""
        call_watch.add(self)
        self.parents.start()
        self._step = register_optimizer_step_pre_hook(self._before_step)

    def stop(self) -> None:
        """Listen no more."""
        call_watch.remove(self)
        self.parents.stop()
        self._tried.clear()
        if self._step is not None:
            self._step.remove()
            self._step = None

    def call_enters(self, module: Module) -> bool:
        """Look whether the call tells the model; it is never an outermost call of the finder's own."""
        self.consider(module)
        return False

    def call_leaves(self, *, raised: bool) -> None:
        """Nothing follows."""

    def consider(self, module: Module) -> bool:
        """Bind, where the call of `module` tells the model; whether it did."""
        if self._is_tried(module):
            return False
        line = self.parents.line(module)
        place = _place()
        models = self.choice.of(line, self.parents)
        if models is None:
            self._note(line[0], place)
            return False
        self.stop()
        self.bound = True
        self.bind(models, place)
        return True

    def _is_tried(self, module: Module) -> bool:
        """Whether the module was refused before, and no module has been put into another one since."""
        reference, registrations = self._tried.get(id(module), (None, -1))
        return reference is not None and reference() is module and registrations == self.parents.registrations

    def _note(self, top: Module, place: str) -> None:
        """Remember a tree that is not the model."""
        members = list(top.modules())
        for member in members:
            self._tried[id(member)] = (weakref.ref(member), self.parents.registrations)
        kind = type(top).__name__
        if not any(one.root() is top or (one.kind, one.modules) == (kind, len(members)) for one in self.seen):
            self.seen.append(CalledTree(kind, len(members), place, weakref.ref(top)))

    def _before_step(self, optimizer: Optimizer, *_args: object) -> None:
        """Fail before step 0: an optimizer is about to change a model that the spec does not fit."""
        if self.choice.patient or os.getpid() != self._pid:
            return
        owned = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        roots = [root for one in self.seen if (root := one.root()) is not None]
        if any(id(parameter) in owned for root in roots for parameter in root.parameters()):
            self.stop()
            error = self.refusal()
            self.refuse(error)
            raise error

    def refusal(self) -> PlanError:
        """Why nothing was bound."""
        return refusal(self.choice.problems, self.seen)


def _place() -> str:
    """`file:line` of the call of a module: in the user's own code where such a frame is on the stack, else nearest to the call."""
    frames = [frame for frame in _frames() if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in ("torch", "probes")]
    if not frames:
        return "an unknown place"
    frame = next((frame for frame in frames if not frame.f_code.co_filename.startswith(INSTALLED)), frames[0])
    path = Path(frame.f_code.co_filename)
    inside = path.is_relative_to(Path.cwd())
    return f"{path.relative_to(Path.cwd()) if inside else path}:{frame.f_lineno}"


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
