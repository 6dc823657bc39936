"""The one place that watches DataLoaders: passes that begin, batches that are pulled, passes that are over or gone."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import wraps
from itertools import count
from operator import attrgetter
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from probes.hooks.capture.tracing import runs_eagerly, wraps_eagerly
from probes.provenance.loaders import SeenLoaders
from probes.runner.watch.process_hooks import changing_listeners
from probes.runner.watch.watched_pass import FetchedPasses, LoaderListener, WatchedPass

Call = Callable[..., Any]


class LoaderWatch:
    """Watches every DataLoader of the process while there are listeners.

    A class derived from `DataLoader` may have an `__iter__` of its own, such as one that runs a single inner iterator for ever: a call of
    it is a pass, and the inner iterator's batches belong to the last one. Its iterators are the program's, and stay as they are.

    Passes are reported of one thread, the one that the loop runs in: that of the last listener that came while no pass was under way,
    until a training call comes in another one. Those of other threads, which may evaluate, are noted and not reported.

    Attributes:
        thread: the thread of the loop.
        fetched: the passes of the loop whose batches another thread fetches; None until one does.
        seen: what the loaders draw from; None until there is one.
    """

    def __init__(self) -> None:
        self.listeners: tuple[LoaderListener, ...] = ()
        self.dataset = ""
        self.seen: SeenLoaders | None = None
        self._passes: dict[int, WatchedPass] = {}  # by the id of the iterator
        self._outer: dict[int, WatchedPass] = {}  # by the id of a loader with an `__iter__` of its own
        self._loaders: dict[int, int] = {}  # id of a loader -> its key
        self._unserved: list[WatchedPass] = []  # those pulled since the last call of a model
        self._streams: list[FrameType] = []  # the generators in which the last pass was exhausted; kept until the next pass begins
        self.gone: deque[tuple[str, int]] = deque()
        self._wrapped: list[tuple[type, str, Call, Call]] = []
        self._subclass_hook: Any = None
        self._process = 0
        self._trained = False
        self._numbers = count(1)
        self.thread = 0
        self.fetched: FetchedPasses | None = None
        self._making = threading.Lock()

    def add(self, listener: LoaderListener) -> None:
        """Begin to listen; passes that began before are reported again."""
        with changing_listeners:
            if not self.listeners:
                self._process, self._trained = os.getpid(), False
                self._wrap()
            if not self._is_under_way():  # a thread that copies the model and calls the copy takes no pass from the loop
                self.thread = get_ident()
            self.listeners = (*self.listeners, listener)
        for watched in (*(self.fetched.passes if self.fetched is not None else ()), *self._known()):
            self._report_again(watched, (listener,))

    def follow(self) -> None:
        """A training call comes in this thread: the loop runs in it, unless the thread that trained before continues."""
        if self._trained and self._is_alive():
            return
        self.thread, self._trained = get_ident(), False
        for watched in self._known():
            if not watched.reported:
                self._report_again(watched, self.listeners)

    def _is_under_way(self) -> bool:
        """Whether somebody listens to a pass that has given batches to another thread."""
        return bool(self.listeners) and self._is_alive() and any(watched.pulls for watched in self._known())

    def _is_alive(self) -> bool:
        """Whether the thread of the loop exists still."""
        return any(thread.ident == self.thread for thread in threading.enumerate())

    def optimizer_stepped(self) -> None:
        """An optimizer has stepped the model in this thread."""
        self._trained = self._trained or get_ident() == self.thread
        if self.fetched is not None:
            self.fetched.due = True

    def _known(self) -> list[WatchedPass]:
        """The passes of the loop's thread that are not over, in the order of their last pulls."""
        every = {watched.key: watched for watched in (*self._passes.values(), *self._outer.values())}
        return sorted((watched for watched in every.values() if watched.thread == self.thread), key=attrgetter("last_pull"))

    def _report_again(self, watched: WatchedPass, listeners: tuple[LoaderListener, ...]) -> None:
        watched.reported = True
        for listener in listeners:
            listener.pass_begins(watched.key, watched.loader, endless=watched.endless, skipped=watched.skipped)
            if watched.loader not in self._loaders.values():
                listener.loader_deleted(watched.loader)
            for pull in range(1 + watched.ahead if watched.pulls and watched.thread == self.thread else 0):
                last = watched.pulls == watched.length and pull == watched.ahead
                listener.batch_pulled(watched.key, grad=watched.grad, last=last, before=True)

    def model_called(self) -> None:
        """A model was called, whichever it is: the batches pulled in this thread are in use."""
        thread = get_ident()
        for watched in [one for one in self._unserved if one.thread == thread]:
            watched.served += 1
            self._unserved.remove(watched)

    def remove(self, listener: LoaderListener) -> None:
        """Stop listening; a method that the program has replaced since stays the program's."""
        if self.fetched is not None:
            self.fetched.end(listener)
        with changing_listeners:
            self.listeners = tuple(one for one in self.listeners if one is not listener)
            if not self.listeners:
                self._unwrap()

    def _unwrap(self) -> None:
        for kind, name, original, ours in self._wrapped:
            if vars(kind).get(name) is ours:
                setattr(kind, name, original)
        self._wrapped.clear()
        if vars(DataLoader).get("__init_subclass__") is self._subclass_hook:
            del DataLoader.__init_subclass__
        self.seen = None
        self._streams.clear()
        if self.fetched is not None:
            self.fetched.passes.clear()
        self._passes.clear()
        self._outer.clear()
        self._loaders.clear()

    @runs_eagerly
    def settle(self) -> None:
        """Report deleted passes and loaders; the garbage collector queues them at any time."""
        while self.gone and get_ident() == self.thread:
            event, key = self.gone.popleft()
            for listener in self.listeners:
                getattr(listener, event)(key)

    def _wrap(self) -> None:
        self._replace(DataLoader, "__iter__", self._iter)
        self._replace(_BaseDataLoaderIter, "__next__", self._pull)
        for kind in _derived(DataLoader):
            self._wrap_derived(kind)
        original: Any = DataLoader.__init_subclass__
        watch = self

        @wraps(original.__func__)
        def __init_subclass__(kind: Any, **options: Any) -> None:  # noqa: N807 - it replaces the method
            original.__func__(kind, **options)
            watch._wrap_derived(kind)

        hook: Any = __init_subclass__
        self._subclass_hook = classmethod(hook)
        setattr(DataLoader, "__init_subclass__", self._subclass_hook)  # noqa: B010 - mypy refuses to assign a class method

    def _wrap_derived(self, kind: type) -> None:
        """Watch the `__iter__` of a class derived from DataLoader, if it has one of its own."""
        for base in kind.__mro__:
            if base is DataLoader or not issubclass(base, DataLoader):
                continue
            known = any(entry[0] is base for entry in self._wrapped)
            if not known and "__iter__" in vars(base):
                self._replace(base, "__iter__", self._outer_iter)

    def _replace(self, kind: type, name: str, around: Callable[[Call], Call]) -> None:
        original = vars(kind)[name] if name in vars(kind) else getattr(kind, name)
        ours = wraps(original)(around(original))
        self._wrapped.append((kind, name, original, ours))
        setattr(kind, name, ours)

    def _iter(self, original: Call) -> Call:
        @wraps_eagerly
        def __iter__(loader: Any) -> Any:  # noqa: N807 - it replaces the method
            iterator = original(loader)
            if self._is_here():
                self._began(loader, iterator, sys._getframe(1))
            return iterator

        return __iter__

    def _outer_iter(self, original: Call) -> Call:
        @wraps_eagerly
        def __iter__(loader: Any) -> Any:  # noqa: N807 - it replaces the method
            if self._is_here():
                self.settle()
                self._outer[id(loader)] = self._begin(loader, sys._getframe(1))
            return original(loader)

        return __iter__

    @runs_eagerly
    def _began(self, loader: Any, iterator: Any, frame: FrameType) -> None:
        """An iterator was made, or a persistent one was reset."""
        before = self._passes.get(id(iterator))
        if before is None:
            weakref.finalize(iterator, self._lose, id(iterator)).atexit = False
        else:
            self._lose(id(iterator))
        self.settle()
        outer = self._outer.get(id(loader))
        self._passes[id(iterator)] = self._begin(loader, frame) if outer is None else outer

    @runs_eagerly
    def _begin(self, loader: Any, frame: FrameType) -> WatchedPass:
        here, endless = get_ident() == self.thread, False
        if here:
            endless = any(one is known for one in _generators(frame) for known in self._streams)
            self._streams = []
        known = next(self._numbers), self._key(loader), get_ident(), endless
        watched = WatchedPass(*known, skipped=_skipped(loader), length=_length(loader), reported=here)
        for listener in self.listeners if here else ():
            listener.pass_begins(watched.key, watched.loader, endless=endless, skipped=watched.skipped)
        return watched

    def _key(self, loader: Any) -> int:
        """The key of a loader; the id of an object may be reused."""
        known = self._loaders.get(id(loader))
        if known is None:
            known = self._loaders[id(loader)] = next(self._numbers)
            weakref.finalize(loader, self._lose_loader, id(loader)).atexit = False
            self.dataset = self.dataset or type(loader.dataset).__name__
            self.seen = self.seen or SeenLoaders()
            self.seen.see(loader)
        return known

    def _pull(self, original: Call) -> Call:
        @wraps_eagerly
        def __next__(iterator: Any) -> Any:  # noqa: N807 - it replaces the method
            watched = self._passes.get(id(iterator)) if self._is_here() else None
            if watched is None:
                return original(iterator)
            watched = self._outer_of(watched)
            if watched.thread != get_ident():
                if watched.thread == self.thread:
                    with self._making:  # several threads may fetch
                        self.fetched = self.fetched or FetchedPasses()
                    self.fetched.passes.append(watched)
                watched.thread, watched.reported = get_ident(), False
            try:
                batch = original(iterator)
            except StopIteration:
                self._exhausted(watched, sys._getframe(1))
                raise
            self._pulled(watched)
            return batch

        return __next__

    @runs_eagerly
    def _pulled(self, watched: WatchedPass) -> None:
        self.settle()
        watched.pulls, watched.last_pull, watched.grad = watched.pulls + 1, next(self._numbers), torch.is_grad_enabled()
        if watched not in self._unserved:
            self._unserved.append(watched)
        for listener in self.listeners if watched.thread == self.thread else ():
            listener.batch_pulled(watched.key, grad=watched.grad, last=watched.pulls == watched.length, before=False)

    @runs_eagerly
    def _exhausted(self, watched: WatchedPass, frame: FrameType) -> None:
        if watched.thread != self.thread:
            watched.over = True
            return
        self.settle()
        self._streams = _generators(frame)
        for listener in self.listeners:
            listener.pass_exhausted(watched.key)

    @runs_eagerly
    def _outer_of(self, watched: WatchedPass) -> WatchedPass:
        """The pass that an inner iterator's batches belong to: the last one over its loader."""
        found = next((one for one in self._outer.values() if one.loader == watched.loader), None)
        return found or watched

    @runs_eagerly
    def _lose(self, iterator: int) -> None:
        watched = self._passes.pop(iterator, None)
        if watched is not None:
            self._unserved = [one for one in self._unserved if one is not watched]
            if self.fetched is not None and self.fetched.lose(watched):
                return
            if watched.over:
                self.gone.append(("pass_exhausted", watched.key))
            self.gone.append(("pass_deleted", watched.key))

    def _lose_loader(self, loader: int) -> None:
        key = self._loaders.pop(loader, None)
        self._outer.pop(loader, None)
        if key is not None:
            self.gone.append(("loader_deleted", key))

    @runs_eagerly
    def _is_here(self) -> bool:
        """Whether this is the program's own process; nothing is counted in a worker."""
        return bool(self.listeners) and os.getpid() == self._process


def _length(loader: Any) -> int:
    """The number of batches of a loader; -1 if it is not known, or if the question would make the loader warn."""
    if isinstance(loader.dataset, IterableDataset):
        return -1
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return -1


def _skipped(loader: Any) -> int:
    """The batches that a loader leaves out at the beginning of a pass, as loaders of Accelerate state it of themselves or their sampler."""
    stated = [getattr(one, "__dict__", {}).get("skip_batches", 0) for one in (loader, loader.batch_sampler)]  # runs no code of the program
    return max(0, *(one for one in stated if isinstance(one, int)))


def _generators(frame: FrameType | None) -> list[FrameType]:
    """The running generators, the innermost first, up to the first frame that is not a generator."""
    found = []
    while frame is not None and (frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_code.co_filename == __file__):
        if frame.f_code.co_filename != __file__:
            found.append(frame)
        frame = frame.f_back
    return found


def _derived(kind: type) -> list[type]:
    """All classes that are derived from one."""
    found: list[type] = []
    derived: type
    for derived in kind.__subclasses__():
        found += [derived, *_derived(derived)]
    return found


loader_watch = LoaderWatch()
"""The instance of this process."""
