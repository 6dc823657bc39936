"""The one place that watches DataLoaders: passes that begin, batches that are pulled, passes that are over or gone."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from operator import attrgetter
from types import FrameType
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from probes.provenance.loaders import SeenLoaders

Call = Callable[..., Any]


class LoaderListener(Protocol):
    """Who hears of passes over loaders."""

    def pass_begins(self, key: Hashable, loader: Hashable, *, endless: bool) -> None:
        """A loader begins to be iterated over."""

    def batch_pulled(self, key: Hashable, *, grad: bool, last: bool, before: bool) -> None:
        """A batch is asked for; `grad`, whether gradients are on; `before`, whether it was asked for before the listener was there."""

    def pass_exhausted(self, key: Hashable) -> None:
        """A pass has no more batches."""

    def pass_gone(self, key: Hashable) -> None:
        """Nobody holds the iterator of a pass any more."""

    def loader_gone(self, loader: Hashable) -> None:
        """Nobody holds a loader any more."""


@dataclass(slots=True)
class WatchedPass:
    """A pass that is not over.

    Attributes:
        key: tells it from others.
        loader: tells its loader from others.
        endless: whether the same generator had begun a pass over the loader before.
        pulls: batches so far.
        served: how often a model was called after a batch of it was pulled.
        grad: whether gradients were on when the last was pulled.
        length: batches that the pass has; -1 where that is not known.
        last_pull: number of its last pull among those of all passes.
    """

    key: int
    loader: int
    endless: bool = False
    length: int = -1
    last_pull: int = 0
    pulls: int = 0
    served: int = 0
    grad: bool = True

    @property
    def ahead(self) -> int:
        """Batches that were asked for before a model was called with the one before them."""
        return self.pulls - max(self.served, 1)


class LoaderWatch:
    """Watches every DataLoader of the process while anybody listens.

    A class derived from `DataLoader` may have an `__iter__` of its own, such as one that runs a single inner iterator for ever: a call of
    it is a pass, and the inner iterator's batches belong to the last one. Its iterators are the program's, and stay as they are.

    Attributes:
        seen: what the loaders draw from.
    """

    def __init__(self) -> None:
        self.listeners: tuple[LoaderListener, ...] = ()
        self.dataset = ""
        self.seen = SeenLoaders()
        self._passes: dict[int, WatchedPass] = {}  # by the id of the iterator
        self._outer: dict[int, WatchedPass] = {}  # by the id of a loader with an `__iter__` of its own
        self._loaders: dict[int, int] = {}  # id of a loader -> its key
        self._unserved: list[WatchedPass] = []  # those pulled since a model was called last
        self._streams: list[FrameType] = []  # the generators in which the last pass was exhausted; held until the next begins
        self.gone: deque[tuple[str, int]] = deque()
        self._wrapped: list[tuple[type, str, Call, Call]] = []
        self._subclass_hook: Any = None
        self._place = (0, 0)
        self._next = 0

    def add(self, listener: LoaderListener) -> None:
        """Begin to listen; passes that began before are reported again."""
        if not self.listeners:
            self._place = (os.getpid(), threading.get_ident())
            self._wrap()
        self.listeners = (*self.listeners, listener)
        known = {watched.key: watched for watched in (*self._passes.values(), *self._outer.values())}
        for watched in sorted(known.values(), key=attrgetter("last_pull")):
            listener.pass_begins(watched.key, watched.loader, endless=watched.endless)
            if watched.loader not in self._loaders.values():
                listener.loader_gone(watched.loader)
            for pull in range(1 + watched.ahead if watched.pulls else 0):
                last = watched.pulls == watched.length and pull == watched.ahead
                listener.batch_pulled(watched.key, grad=watched.grad, last=last, before=True)

    def model_called(self) -> None:
        """A model was called, whatever it is: what was pulled is in use."""
        for watched in self._unserved:
            watched.served += 1
        self._unserved.clear()

    def remove(self, listener: LoaderListener) -> None:
        """Listen no more; a method that the program has replaced since stays the program's."""
        self.listeners = tuple(one for one in self.listeners if one is not listener)
        if self.listeners:
            return
        for kind, name, original, ours in self._wrapped:
            if vars(kind).get(name) is ours:
                setattr(kind, name, original)
        self._wrapped.clear()
        if vars(DataLoader).get("__init_subclass__") is self._subclass_hook:
            del DataLoader.__init_subclass__
        self.seen = SeenLoaders()
        self._streams.clear()
        self._passes.clear()
        self._outer.clear()
        self._loaders.clear()

    def settle(self) -> None:
        """Report passes and loaders that are gone; the collector queues them at any time."""
        while self.gone:
            kind, key = self.gone.popleft()
            for listener in self.listeners:
                (listener.pass_gone if kind == "pass" else listener.loader_gone)(key)

    def _wrap(self) -> None:
        self._replace(DataLoader, "__iter__", self._iter)
        self._replace(_BaseDataLoaderIter, "__next__", self._pull)
        for kind in _derived(DataLoader):
            self._wrap_derived(kind)
        original: Any = DataLoader.__init_subclass__
        watch = self

        def __init_subclass__(kind: Any, **options: Any) -> None:  # noqa: N807 - it stands in for the method
            original.__func__(kind, **options)
            watch._wrap_derived(kind)

        hook: Any = __init_subclass__
        self._subclass_hook = classmethod(hook)
        setattr(DataLoader, "__init_subclass__", self._subclass_hook)  # noqa: B010 - an assignment of a class method is none for mypy

    def _wrap_derived(self, kind: type) -> None:
        """Watch the `__iter__` of a class derived from DataLoader, where it has one of its own."""
        for base in kind.__mro__:
            if base is DataLoader or not issubclass(base, DataLoader):
                continue
            known = any(entry[0] is base for entry in self._wrapped)
            if not known and "__iter__" in vars(base):
                self._replace(base, "__iter__", self._outer_iter)

    def _replace(self, kind: type, name: str, around: Callable[[Call], Call]) -> None:
        original = vars(kind)[name] if name in vars(kind) else getattr(kind, name)
        ours = around(original)
        self._wrapped.append((kind, name, original, ours))
        setattr(kind, name, ours)

    def _iter(self, original: Call) -> Call:
        def __iter__(loader: Any) -> Any:  # noqa: N807 - it stands in for the method
            iterator = original(loader)
            if self._is_here():
                self._began(loader, iterator, sys._getframe(1))
            return iterator

        return __iter__

    def _outer_iter(self, original: Call) -> Call:
        def __iter__(loader: Any) -> Any:  # noqa: N807 - it stands in for the method
            if self._is_here():
                self.settle()
                self._outer[id(loader)] = self._begin(loader, sys._getframe(1))
            return original(loader)

        return __iter__

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

    def _begin(self, loader: Any, frame: FrameType) -> WatchedPass:
        self._next += 1
        endless = any(one is known for one in _generators(frame) for known in self._streams)
        self._streams = []
        watched = WatchedPass(self._next, self._key(loader), endless, _length(loader))
        for listener in self.listeners:
            listener.pass_begins(watched.key, watched.loader, endless=endless)
        return watched

    def _key(self, loader: Any) -> int:
        """The key of a loader; an id may pass on to another object."""
        known = self._loaders.get(id(loader))
        if known is None:
            self._next += 1
            known = self._loaders[id(loader)] = self._next
            weakref.finalize(loader, self._lose_loader, id(loader)).atexit = False
            self.dataset = self.dataset or type(loader.dataset).__name__
            self.seen.see(loader)
        return known

    def _pull(self, original: Call) -> Call:
        def __next__(iterator: Any) -> Any:  # noqa: N807 - it stands in for the method
            watched = self._passes.get(id(iterator)) if self._is_here() else None
            if watched is None:
                return original(iterator)
            watched = self._outer_of(watched)
            try:
                batch = original(iterator)
            except StopIteration:
                self._exhausted(watched, sys._getframe(1))
                raise
            self._pulled(watched)
            return batch

        return __next__

    def _pulled(self, watched: WatchedPass) -> None:
        self.settle()
        self._next += 1
        watched.pulls, watched.last_pull, watched.grad = watched.pulls + 1, self._next, torch.is_grad_enabled()
        if watched not in self._unserved:
            self._unserved.append(watched)
        for listener in self.listeners:
            listener.batch_pulled(watched.key, grad=watched.grad, last=watched.pulls == watched.length, before=False)

    def _exhausted(self, watched: WatchedPass, frame: FrameType) -> None:
        self.settle()
        self._streams = _generators(frame)
        for listener in self.listeners:
            listener.pass_exhausted(watched.key)

    def _outer_of(self, watched: WatchedPass) -> WatchedPass:
        """The pass that an inner iterator's batches belong to: the last one over its loader."""
        found = next((one for one in self._outer.values() if one.loader == watched.loader), None)
        return found or watched

    def _lose(self, iterator: int) -> None:
        watched = self._passes.pop(iterator, None)
        if watched is not None:
            self.gone.append(("pass", watched.key))

    def _lose_loader(self, loader: int) -> None:
        key = self._loaders.pop(loader, None)
        self._outer.pop(loader, None)
        if key is not None:
            self.gone.append(("loader", key))

    def _is_here(self) -> bool:
        """Whether this is the program's own thread; nothing is counted in a worker process or a prefetching thread."""
        return bool(self.listeners) and (os.getpid(), threading.get_ident()) == self._place


def _length(loader: Any) -> int:
    """How many batches a loader gives; -1 where it does not say, or asking would make it warn."""
    if isinstance(loader.dataset, IterableDataset):
        return -1
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return -1


def _generators(frame: FrameType | None) -> list[FrameType]:
    """The generators that are running, the innermost first, down to a frame that is none."""
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
"""The process's one."""
