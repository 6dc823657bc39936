"""Hooks that hang on their modules only while a probe of theirs is due."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from probes.hooks.capture import compiled
from probes.hooks.capture.run_state import Gate

Hooks = OrderedDict[int, Callable[..., Any]]


class Hanger:
    """The hooks that one gate opens and shuts.

    A hook that has nothing to do costs as much as the call of a module without hooks; taking it down and hanging it up again
    costs a fifth of that. Where a module has other hooks too there is nothing to gain, and ours stays.

    Attributes:
        gate: whether they have anything to do.
        hung: whether they hang.
    """

    __slots__ = ("gate", "hung", "places")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.hung = True
        self.places: list[tuple[Hooks, int, Callable[..., Any]]] = []

    def add(self, handle: Any) -> None:
        """Take charge of a hook that hangs, by the handle that its registration gave."""
        hooks = handle.hooks_dict_ref()
        if type(hooks) is OrderedDict and len(hooks) == 1:
            self.places.append((hooks, handle.id, hooks[handle.id]))

    def follow(self) -> None:
        """Hang the hooks up or take them down, as the gate says."""
        if self.gate.due:
            self.hang()
        elif not compiled.in_use():  # a graph that is made while a hook is down never calls it
            for hooks, number, _ in self.places:
                if len(hooks) == 1:
                    hooks.pop(number, None)
            self.hung = False

    def hang(self) -> None:
        """Hang the hooks up, each before those that others have registered since."""
        self.hung = True
        for hooks, number, hook in self.places:
            hooks[number] = hook
            if len(hooks) > 1:
                hooks.move_to_end(number, last=False)
        if compiled.in_use():
            compiled.forget()
