"""The one place that watches `Module.__call__`: outermost calls into the trees of runs, and of whoever looks for a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

import torch
from torch.nn import Module

Call = Callable[..., Any]

is_compiling = torch.compiler.is_compiling


class CallListener(Protocol):
    """Who hears of calls of modules."""

    def call_enters(self, module: Module) -> bool:
        """A module is called outside the outermost call, if any, that the listener is in on this thread.

        Returns:
            Whether it is an outermost call for the listener, which hears of no other until it has returned.
        """

    def call_leaves(self, *, raised: bool) -> None:
        """The outermost call of this thread returns, or raises."""

    @property
    def counted(self) -> frozenset[int]:
        """The modules, by id, whose calls within an outermost one the listener numbers now."""

    def module_enters(self, module: int) -> None:
        """One of them is called."""

    def module_leaves(self, module: int) -> None:
        """Its call returns, or raises."""


class OutermostCallsOnly:
    """The part of a listener that numbers no calls within the outermost one."""

    counted: frozenset[int] = frozenset()

    def module_enters(self, module: int) -> None:
        """Ignore the call."""

    def module_leaves(self, module: int) -> None:
        """Ignore the call."""


class CallWatch:
    """Stands in for `Module.__call__` while anybody listens.

    `Module.__call__` is replaced once and stays so, since replacing it costs more than hundreds of calls of modules: every class
    derived from `Module` forgets its attributes. A global forward hook would not do: it sees neither keyword inputs nor what the
    module's own pre-forward hooks are about to see, and no exception. A bound `call = model.__call__` that the program keeps goes on to
    work when nobody listens any more.

    Attributes:
        inside: how many of the listeners are in an outermost call of theirs, by thread.
    """

    def __init__(self) -> None:
        self.listeners: tuple[CallListener, ...] = ()
        self.inside: dict[int, list[CallListener]] = {}
        self._number = 0
        self._original: Call = Module.__call__
        self._wrapper = self._make()
        self._in_place = False
        self._pid = os.getpid()

    def add(self, listener: CallListener) -> None:
        """Begin to listen; a call that is entering is heard of too."""
        self.listeners = (*self.listeners, listener)
        self._number = len(self.listeners)
        self._pid = os.getpid()
        if not self._in_place:
            self._original = Module.__call__
            Module.__call__ = self._wrapper  # type: ignore[method-assign]  # restored by `remove`
            self._in_place = True

    def remove(self, listener: CallListener) -> None:
        """Listen no more."""
        self.listeners = tuple(one for one in self.listeners if one is not listener)
        self._number = len(self.listeners)
        for thread, inside in list(self.inside.items()):
            self._set(thread, [one for one in inside if one is not listener])
        if not self.listeners and Module.__call__ is self._wrapper:
            Module.__call__ = self._original  # type: ignore[method-assign]  # the very function found there
            self._in_place = False

    def _make(self) -> Call:
        """The one function that stands in: what the program has bound, or wrapped, goes on to work for the next listener."""
        watch, inside = self, self.inside

        def __call__(module: Module, /, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it stands in for Module.__call__
            original = watch._original
            if is_compiling() or not watch._number:
                return original(module, *args, **kwargs)
            within = inside.get(get_ident())
            if within is None or len(within) != watch._number:
                return watch._through(original, module, args, kwargs)
            for listener in within:
                if id(module) in listener.counted:
                    return watch._count(original, within, module, args, kwargs)
            return original(module, *args, **kwargs)

        return __call__

    def _through(self, original: Call, module: Module, args: Any, kwargs: Any) -> Any:
        """A call that is an outermost one for some listener, or for none."""
        if os.getpid() != self._pid:  # a forked worker of a DataLoader goes its own way
            return original(module, *args, **kwargs)
        thread = get_ident()
        entered = self._enter(thread, module)
        if not entered:
            return self._count(original, self.inside.get(thread, []), module, args, kwargs)
        try:
            result = self._count(original, self.inside[thread], module, args, kwargs)
        except BaseException:
            self._leave(thread, entered, raised=True)
            raise
        self._leave(thread, entered, raised=False)
        return result

    def _count(self, original: Call, within: list[CallListener], module: Module, args: Any, kwargs: Any) -> Any:
        """A call whose number some listeners want; it is drawn once, for its inputs, outputs and gradients."""
        key = id(module)
        counting = [listener for listener in within if key in listener.counted]
        for listener in counting:
            listener.module_enters(key)
        try:
            return original(module, *args, **kwargs)
        finally:
            for listener in counting:
                listener.module_leaves(key)

    def _enter(self, thread: int, module: Module) -> list[CallListener]:
        """Ask every listener that is in no outermost call on this thread, also those that begin to listen meanwhile."""
        asked: list[CallListener] = []
        entered: list[CallListener] = []
        while fresh := [one for one in self.listeners if not any(one is known for known in asked)]:
            for listener in fresh:
                asked.append(listener)
                if any(listener is known for known in self.inside.get(thread, ())) or not listener.call_enters(module):
                    continue
                entered.append(listener)
                self._set(thread, [*self.inside.get(thread, ()), listener])
        return entered

    def _leave(self, thread: int, entered: list[CallListener], *, raised: bool) -> None:
        self._set(thread, [one for one in self.inside.get(thread, ()) if not any(one is left for left in entered)])
        for listener in entered:
            if any(listener is known for known in self.listeners):
                listener.call_leaves(raised=raised)

    def _set(self, thread: int, inside: list[CallListener]) -> None:
        if inside:
            self.inside[thread] = inside
        else:
            self.inside.pop(thread, None)


call_watch = CallWatch()
"""The process's one: two that replaced the same method could not be taken away in any order."""
