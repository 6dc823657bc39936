"""Exclude probes' hooks from pickles, deep copies and scripted modules of a model.

`torch.save(model)` and `copy.deepcopy(model)` copy a module's tables of hooks with it, and `torch.jit.script` compiles every
hook that it finds there. Entries of an OrderedDict cannot leave themselves out, and another dict in its place would part the
handles of the program's own hooks from their table. So two functions that all of these go through are replaced while a run
is open: `Module.__reduce_ex__` and `torch.jit._recursive.create_script_module`.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch.jit._recursive
from torch.nn import Module

from probes.hooks.capture.tracing import runs_eagerly

Reduced = str | tuple[Any, ...]

MARKS = {
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
}
"""The hook tables of a module, each with the tables that describe its entries."""


class InertCopy:
    """The replacement of a probe's hook in a deep copy by a module's own `__deepcopy__`; it does nothing."""

    __slots__ = ("gate",)

    def __init__(self) -> None:
        self.gate = _Closed()

    def __call__(self, *_args: object, **_kwargs: object) -> None:
        """Do nothing."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing()


class _Closed:
    """The gate that the copy of a bound method of a hook reads."""

    due = False


class HookOfOurs:
    """A hook that is left out of pickles, deep copies and scripted modules, and that is never compiled by itself."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        if "__call__" in vars(cls):
            runs_eagerly(vars(cls)["__call__"])

    def __deepcopy__(self, memo: dict[int, object]) -> InertCopy:
        return InertCopy()

    def __copy__(self) -> InertCopy:
        return InertCopy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing()


def _nothing() -> tuple[Any, ...]:
    """A pickle of a standard-library callable that takes any arguments and returns None: it loads without this package."""
    return getattr, (nullcontext(), "__exit__")


def is_ours(hook: object) -> bool:
    """Whether an entry of a table of hooks belongs to a probe, or is a bound method of such a hook."""
    return isinstance(getattr(hook, "__self__", hook), HookOfOurs)


def take_off(module: Module, state: object) -> None:
    """Remove the hooks of one run from a module, wherever PyTorch has moved them.

    Args:
        module: any module.
        state: what the hooks of the run share.
    """
    for table, marks in MARKS.items():
        hooks = vars(module).get(table) or {}
        for number, hook in list(hooks.items()):
            if _is_of(hook, state):
                for name in (table, *marks):
                    vars(module).get(name, {}).pop(number, None)


def has_hook(module: Module, table: str, state: object) -> bool:
    """Whether a table of hooks of a module, such as `_forward_hooks`, has one of a run; other code may remove all hooks at once.

    Args:
        module: any module.
        table: the name of the table.
        state: what the hooks of the run share.
    """
    return any(_is_of(hook, state) for hook in (getattr(module, table, None) or {}).values())


def _is_of(hook: object, state: object) -> bool:
    ours = getattr(hook, "__self__", hook)
    holder = next((found for name in ("hook", "tap") if (found := getattr(ours, name, None)) is not None), ours)
    return is_ours(hook) and getattr(holder, "state", None) is state


def without_ours(state: dict[str, Any]) -> dict[str, Any]:
    """The `__dict__` of a module without probes' hooks; itself if there are none."""
    for table, marks in MARKS.items():
        ours = {number for number, hook in (state.get(table) or {}).items() if is_ours(hook)}
        if ours:
            tables = {name: _but(state[name], ours) for name in (table, *marks) if name in state}
            state = {**state, **tables}
    return state


def _but(table: dict[int, Any], ours: set[int]) -> dict[int, Any]:
    return OrderedDict((number, entry) for number, entry in table.items() if number not in ours)


def _cleaned(value: Any) -> Any:
    """A part of the result of `__reduce_ex__`: states of modules are dicts, alone or in a tuple."""
    if type(value) is tuple:
        return tuple(_cleaned(member) for member in value)
    return without_ours(value) if type(value) is dict and not MARKS.keys().isdisjoint(value) else value


@contextmanager
def hooks_aside(model: Module) -> Iterator[None]:
    """Take probes' hooks off every module of a tree for the body, then put them back in place."""
    tables = [vars(module)[table] for module in model.modules() for table in MARKS if vars(module).get(table)]
    before = [(table, list(table.items())) for table in tables if any(is_ours(hook) for hook in table.values())]
    for table, entries in before:
        for number, hook in entries:
            if is_ours(hook):
                del table[number]
    try:
        yield
    finally:
        for table, entries in before:
            since = [entry for entry in table.items() if entry not in entries]
            table.clear()
            table.update([*entries, *since])


class CleanCopies:
    """Replaces the two functions while at least one run is open; each is restored if it is still this replacement."""

    def __init__(self) -> None:
        self._runs = 0
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        """A run opens."""
        self._runs += 1
        if self._runs == 1:
            self._undo = [_replace_reduce(), _replace_scripting()]

    def stop(self) -> None:
        """A run is over."""
        self._runs -= 1
        if not self._runs:
            for undo in self._undo:
                undo()


clean_copies = CleanCopies()


def _replace_reduce() -> Callable[[], None]:
    original = Module.__reduce_ex__

    def __reduce_ex__(module: Module, protocol: Any) -> Reduced:  # noqa: N807 - it replaces the method
        reduced: Reduced = original(module, protocol)
        # A shallow copy shares the tables with its model, and loses our hooks when the model does.
        shallow = sys._getframe(1).f_code is copy.copy.__code__
        return reduced if shallow else _cleaned(reduced)

    Module.__reduce_ex__ = __reduce_ex__  # type: ignore[assignment, method-assign]  # restored below

    def undo() -> None:
        if vars(Module).get("__reduce_ex__") is not __reduce_ex__:
            return
        if original is object.__reduce_ex__:
            del Module.__reduce_ex__
        else:
            Module.__reduce_ex__ = original  # type: ignore[method-assign]  # the original function, saved above

    return undo


def _replace_scripting() -> Callable[[], None]:
    recursive: Any = torch.jit._recursive
    original = recursive.create_script_module

    def create_script_module(nn_module: Module, *args: Any, **kwargs: Any) -> Any:
        with hooks_aside(nn_module):
            return original(nn_module, *args, **kwargs)

    recursive.create_script_module = create_script_module

    def undo() -> None:
        if recursive.create_script_module is create_script_module:
            recursive.create_script_module = original

    return undo
