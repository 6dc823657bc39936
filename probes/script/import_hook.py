"""Notification when a program imports torch.

A program may set OMP_NUM_THREADS or TORCH_LOGS before it imports torch. Were torch imported earlier, on our behalf,
that would be without effect, and numbers could differ.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class ImportHook(MetaPathFinder):
    """Calls back once a module has been imported, at once where it already is.

    Args:
        name: name of a top-level module.
        then: called without arguments, in the import of the module, right after its code ran.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then = then
        self.looking = False

    def start(self) -> None:
        """Begin to wait."""
        if self.name in sys.modules:
            self.then()
        else:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Stop waiting."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Let the other finders find the module, and wrap the loader that they return.

        A program may only ask whether the module is there, as transformers does, so we stay until it is imported.
        """
        if fullname != self.name or self.looking:
            return None
        self.looking = True
        try:
            spec = find_spec(fullname)
        finally:
            self.looking = False
        if spec is not None and spec.loader is not None:
            self._follow(spec)
        return spec

    def _follow(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            raise AssertionError("BUG: a spec without loader is not followed")
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self.stop()
            vars(loader).pop("exec_module", None)  # several hooks may have waited; the first one restores the loader for all
            self.then()

        loader.exec_module = exec_module  # type: ignore[method-assign]  # restored when it has run
