"""The only watch over `Module.__call__`: outermost calls into the trees of runs, and into any module before the model is known."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Hashable, Mapping
from functools import partial
from threading import get_ident
from typing import Any, NamedTuple, Protocol

import torch
from torch.nn import Module
from torch.nn.utils.parametrize import ParametrizationList

from probes.hooks.capture.tracing import runs_eagerly, wraps_eagerly
from probes.runner.watch.process_hooks import changing_listeners

Call = Callable[..., Any]

is_dynamo_compiling = torch.compiler.is_dynamo_compiling
_NOBODY: frozenset[int] = frozenset()
_NONE: dict[int, weakref.ref[Module]] = {}


class CallNumbers(Protocol):
    """Numbers the calls of modules within an outermost call.

    Attributes:
        drawn: how many calls of a module have been numbered, by its id.
        running: the number of the innermost call of each module that has not returned, by its id.
    """

    drawn: dict[Hashable, int]
    running: dict[int, int]

    @property
    def counted(self) -> frozenset[int]:
        """The modules, by id, whose calls are numbered."""

    def enter(self, module: int) -> int | None:
        """A module is called; returns the number of the outer call of it, in recursion."""

    def leave(self, module: int, around: int | None) -> None:
        """The call returns, or raises."""


class NoNumbers:
    """Numbers nothing."""

    counted = _NOBODY

    def __init__(self) -> None:
        self.drawn: dict[Hashable, int] = {}
        self.running: dict[int, int] = {}

    def enter(self, module: int) -> int | None:
        """Never called."""

    def leave(self, module: int, around: int | None) -> None:
        """Never called."""


NO_NUMBERS = NoNumbers()


class CallListener(Protocol):
    """A listener to calls of modules."""

    def call_enters(self, module: Module) -> CallNumbers | None:
        """A module is called outside the outermost call, if any, that the listener is in on this thread.

        Returns:
            What numbers the calls within it, where it is an outermost call for the listener, which receives no other until it has
            returned; else None.
        """

    def call_leaves(self, *, raised: bool) -> None:
        """The outermost call of this thread returns, or raises."""

    def ignores(self, module: Module) -> bool:
        """Whether `call_enters` does nothing for this module, whatever happens, until `CallWatch.forget` is called."""


Inside = Mapping[CallListener, CallNumbers]


class ThreadCalls:
    """Which calls of a thread concern somebody.

    Attributes:
        inside: the listeners that are in an outermost call of theirs, and what numbers the calls within it.
        asks: whether there are listeners in none.
        ids: where `asks`, the modules that all of these ignore; else the modules whose calls are numbered.
        ignored: the modules that the listeners in no outermost call ignore.
        numbers: what alone numbers calls, if no listener wants any.
    """

    __slots__ = ("asks", "ids", "ignored", "inside", "numbers")

    inside: Inside
    asks: bool
    ids: Collection[int]
    ignored: dict[int, weakref.ref[Module]]
    numbers: CallNumbers | None


class Replacement(NamedTuple):
    """A function that replaces `Module.__call__`.

    Attributes:
        function: the function.
        original: what it calls.
        outside: what it looks into on threads on which no listener is in an outermost call.
        threads: the same for the other threads.
    """

    function: Call
    original: Call
    outside: ThreadCalls
    threads: dict[int, ThreadCalls]


class CallWatch:
    """Replaces `Module.__call__` while there are listeners.

    `Module.__call__` is replaced once and stays so, since replacing it costs more than hundreds of calls of modules: every class
    derived from `Module` forgets its attributes. A global forward hook would not do: it sees neither keyword inputs nor what the
    module's own pre-forward hooks are about to see, and no exception. Hooks on the root would not do either: a program may call a
    part of the model by itself at any time. A bound `call = model.__call__` that the program keeps still works when nobody listens
    any more. Another tool that replaced `Module.__call__` earlier may put back what it found then, so the watch makes sure between
    steps that it is in place (`renew`). Only the replacement in place looks at calls; earlier ones, which other tools may call, pass on.

    A call that concerns nobody costs one look into a set, about a quarter of a hook that does nothing.
    """

    def __init__(self) -> None:
        self.listeners: tuple[CallListener, ...] = ()
        self._ignored: dict[tuple[int, ...], dict[int, weakref.ref[Module]]] = {}
        first = self._make(Module.__call__)
        self._made = [first]
        self.function, self._original, self._outside, self._threads = first
        self._fill(self._outside, {})

    def add(self, listener: CallListener) -> None:
        """Begin to listen; a call that is entering is reported too."""
        with changing_listeners:
            self._listen((*self.listeners, listener))
            self.renew()

    def remove(self, listener: CallListener) -> None:
        """Stop listening."""
        with changing_listeners:
            self._listen(tuple(one for one in self.listeners if one is not listener))
            if not self.listeners and Module.__call__ is self.function:
                Module.__call__ = self._original  # type: ignore[method-assign]  # what `renew` has found there

    def renew(self) -> None:
        """Replace `Module.__call__` if there are listeners and it is not replaced; while a thread is in a call of a listener, later."""
        if Module.__call__ is self.function:
            return
        with changing_listeners:
            now = Module.__call__
            if now is self.function or self._threads or not self.listeners:
                return
            found = next((one for one in self._made if now in (one.function, one.original)), None)
            self._use(found or self._make(now))
            Module.__call__ = self.function  # type: ignore[method-assign]  # restored by `remove`

    def _use(self, replacement: Replacement) -> None:
        """Look at the calls that one replacement gets; the one before passes calls on from now on."""
        self._fill(self._outside, {}, listeners=())
        if replacement not in self._made:
            self._made.append(replacement)
        self.function, self._original, self._outside, self._threads = replacement
        self._fill(self._outside, {})

    def silence(self) -> None:
        """Remove all listeners: a forked worker of a DataLoader is independent."""
        self._threads.clear()
        self._listen(())

    def forget(self) -> None:
        """Ask the listeners again about modules that they have ignored."""
        for known in list(self._ignored.values()):
            known.clear()

    def _make(self, original: Call) -> Replacement:
        """A replacement of a function; references to it that the program keeps still work for the next listener.

        The profiler of torch looks for the module under the name `self` in the frame of `Module.__call__`, and crashes without it.
        """
        watch, outside, direct = self, ThreadCalls(), calls_call_impl(original)
        threads: dict[int, ThreadCalls] = {}  # of the threads on which a listener is in an outermost call

        @wraps_eagerly
        def __call__(self: Module, /, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it replaces Module.__call__
            if is_dynamo_compiling():
                return original(self, *args, **kwargs)
            here, key = threads.get(get_ident(), outside), id(self)
            if (key in here.ids) is here.asks:
                if direct and self._compiled_call_impl is None:
                    return self._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]  # torch's own, untyped
                return original(self, *args, **kwargs)
            numbers = here.numbers
            if numbers is None:
                return watch._look(here, self, args, kwargs)
            call: Call = self._call_impl if direct and self._compiled_call_impl is None else partial(original, self)
            running, drawn = numbers.running, numbers.drawn  # the same as `enter` and `leave`, without two calls for each capture
            around = running.get(key)
            running[key] = number = drawn.get(key, 0)
            drawn[key] = number + 1
            try:
                return call(*args, **kwargs)
            finally:
                if around is None:
                    del running[key]
                else:
                    running[key] = around

        return Replacement(__call__, original, outside, threads)

    @wraps_eagerly
    def _look(self, here: ThreadCalls, module: Module, args: Any, kwargs: Any) -> Any:
        """A call that may be an outermost one for a listener, or whose number a listener wants."""
        if not here.asks or id(module) in here.ignored:
            return self._number(here.inside, module, args, kwargs)
        thread = get_ident()
        entered = self._enter(thread, module, here.inside)
        here = self._threads.get(thread, self._outside)
        if not entered:
            return self._number(here.inside, module, args, kwargs)
        raised = True
        try:
            result = self._number(here.inside, module, args, kwargs)
            raised = False
        finally:
            self._leave(thread, entered, raised=raised)
        return result

    @wraps_eagerly
    def _number(self, inside: Inside, module: Module, args: Any, kwargs: Any) -> Any:
        """Call a module; its number is drawn once, for its inputs, outputs and gradients."""
        key = id(module)
        counting = []
        for numbers in inside.values():  # no comprehension here and below: each adds a frame in every step
            if key in numbers.counted:
                counting.append((numbers, numbers.enter(key)))
        try:
            return self._original(module, *args, **kwargs)
        finally:
            for numbers, around in counting:
                numbers.leave(key, around)

    @runs_eagerly
    def _enter(self, thread: int, module: Module, inside: Inside) -> list[CallListener]:
        """Ask every listener that is in no outermost call on this thread, also those that begin to listen meanwhile.

        A program that reads a parametrized tensor, such as `layer.weight` after `weight_norm`, calls the modules that compute it: no call
        of a model, and nobody is asked.
        """
        reads = isinstance(module, ParametrizationList)
        asked: list[CallListener] = []
        entered: list[CallListener] = []
        listeners: tuple[CallListener, ...] = ()
        try:
            while listeners is not self.listeners:
                listeners = self.listeners
                for listener in listeners:
                    if listener in inside or listener in asked or listener not in self.listeners:
                        continue
                    asked.append(listener)
                    numbers = NO_NUMBERS if reads else listener.call_enters(module)
                    if numbers is not None:
                        entered.append(listener)
                        self._set(thread, {**self._threads.get(thread, self._outside).inside, listener: numbers})
        except BaseException:  # what a listener raises, an interrupt too; raised again
            self._leave(thread, entered, raised=True)
            raise
        if not entered:
            self._ignore(thread, module)
        return entered

    @runs_eagerly
    def _ignore(self, thread: int, module: Module) -> None:
        """Ask no more about a module that concerns none of the listeners that are in no outermost call."""
        key, known = id(module), self._threads.get(thread, self._outside).ignored
        if all(listener.ignores(module) for listener in self._others(self._threads.get(thread, self._outside).inside, self.listeners)):
            known[key] = weakref.ref(module, lambda _: known.pop(key, None))  # its id may be reused by another module

    @runs_eagerly
    def _leave(self, thread: int, entered: list[CallListener], *, raised: bool) -> None:
        inside = self._threads.get(thread, self._outside).inside
        if len(entered) == len(inside):
            self._threads.pop(thread, None)
        else:
            self._set(thread, {one: inside[one] for one in inside if one not in entered})
        for listener in entered:
            if listener in self.listeners:
                listener.call_leaves(raised=raised)

    # Outermost calls by thread

    def _listen(self, listeners: tuple[CallListener, ...]) -> None:
        """Change the set of listeners."""
        self.listeners = listeners
        self._ignored.clear()
        self._fill(self._outside, {})
        for thread, here in list(self._threads.items()):
            self._set(thread, {one: numbers for one, numbers in here.inside.items() if one in listeners})

    def _set(self, thread: int, inside: Inside) -> None:
        if inside:
            here = ThreadCalls()
            self._fill(here, inside)
            self._threads[thread] = here
        else:
            self._threads.pop(thread, None)

    def _fill(self, here: ThreadCalls, inside: Inside, listeners: tuple[CallListener, ...] | None = None) -> None:
        listeners = self.listeners if listeners is None else listeners
        others = self._others(inside, listeners) if len(inside) < len(listeners) else ()
        counted, counting = _NOBODY, []
        for numbers in inside.values():
            if numbers.counted:
                counted |= numbers.counted
                counting.append(numbers)
        here.inside, here.asks = inside, bool(others)
        here.numbers = counting[0] if len(counting) == 1 and not others else None
        here.ignored = self._ignored.setdefault(tuple(map(id, others)), {}) if others else _NONE
        here.ids = counted if not others else _NOBODY if counted else here.ignored

    def _others(self, inside: Inside, listeners: tuple[CallListener, ...]) -> tuple[CallListener, ...]:
        """The listeners that are in no outermost call."""
        return tuple([one for one in listeners if one not in inside])


def calls_call_impl(function: Any) -> bool:
    """Whether a function does nothing but call `_call_impl` of a module or, where it is compiled, `_compiled_call_impl`.

    PyTorch's own does; a later release may do more, or another tool may have replaced it.
    """
    code = getattr(function, "__code__", None)
    return getattr(code, "co_names", None) == ("_compiled_call_impl", "_call_impl")


call_watch = CallWatch()
"""The instance of this process: two that replaced the same method could not be taken away in any order."""

os.register_at_fork(after_in_child=call_watch.silence)
