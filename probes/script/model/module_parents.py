"""Parents of modules: the way up from a module that is called to the model that contains it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

from torch.nn import Module

from probes.hooks.capture.tracing import outside_graphs
from probes.plan.tree import wrapped
from probes.runner.watch.call_watch import call_watch
from probes.runner.watch.process_hooks import module_assigned


class ModuleParents:
    """Records every registration of a module in another one, with weak references.

    Attributes:
        registrations: how many there were.
    """

    def __init__(self) -> None:
        self.registrations = 0
        self._parents: dict[int, list[weakref.ref[Module]]] = {}
        self._ends: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to record."""
        self._ends = module_assigned.add(self._note)

    def stop(self) -> None:
        """Stop recording, and forget all registrations."""
        if self._ends is not None:
            self._ends()
            self._ends = None
        self._parents.clear()

    @outside_graphs
    def _note(self, module: Module, _name: str, member: Module | None) -> None:
        self.registrations += 1
        call_watch.forget()
        if member is not None:
            self._parents.setdefault(id(member), []).append(weakref.ref(module))

    def parents(self, module: Module) -> Iterator[Module]:
        """The modules that hold `module` now."""
        for reference in self._parents.get(id(module), ()):
            parent = reference()
            # An id may have been reused, and a member may have been removed.
            if parent is not None and any(member is module for member in parent._modules.values()):
                yield parent

    def line(self, module: Module) -> list[Module]:
        """The module and everything above it, the topmost first."""
        found = [module]
        for below in found:
            found += [parent for parent in self.parents(below) if not any(parent is known for known in found)]
        return found[::-1]

    def tops(self) -> list[Module]:
        """The live modules that contain others and are contained in none, each once."""
        known = {id(module): module for references in self._parents.values() for one in references if (module := one()) is not None}
        return [module for module in known.values() if next(self.parents(module), None) is None]

    def of_class(self, name: str) -> list[Module]:
        """The live modules of a class that contain others, each once."""
        known = (reference() for references in self._parents.values() for reference in references)
        return list({id(module): module for module in known if module is not None and is_called(module, name)}.values())


def is_called(module: Module, name: str) -> bool:
    """Whether a module, without its wrappers, is of the class `name` or a derived class."""
    inner = wrapped(module)
    while inner is not None:
        module = inner[1]
        inner = wrapped(module)
    return any(base.__name__ == name for base in type(module).__mro__)
