"""The one place that watches DataLoaders: passes that begin, batches that are pulled, passes that are over or gone."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import weakref
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
from probes.runner.watch.watched_pass import FetchedPasses, FollowedLoop, LoaderListener, WatchedPass

Call = Callable[..., Any]


class LoaderWatch:
    """Watches every DataLoader of the process while there are listeners.

    A class derived from `DataLoader` may have an `__iter__` of its own, such as one that runs a single inner iterator for ever: a call of
    it is a pass, and the inner iterator's batches belong to the last one. Its iterators are the program's, and stay as they are.

    Each listener follows the loop of its model, which runs in one thread: the one in which the listener came, if that has given batches,
    until a training call comes in another one. It gets the passes of this thread. Those of other threads, which may evaluate or train
    other models, are noted and not reported.

    Attributes:
        loops: the loops that are followed.
        fetched: the passes of a loop whose batches another thread fetches, by the thread of the loop.
        seen: what the loaders draw from; None until there is one.
    """

    def __init__(self) -> None:
        self.loops: tuple[FollowedLoop, ...] = ()
        self.dataset = ""
        self.seen: SeenLoaders | None = None
        self._passes: dict[int, WatchedPass] = {}  # by the id of the iterator
        self._outer: dict[int, WatchedPass] = {}  # by the id of a loader with an `__iter__` of its own
        self._loaders: dict[int, int] = {}  # id of a loader -> its key
        self._unserved: list[WatchedPass] = []  # those pulled since the last call of a model
        self._streams: dict[int, list[FrameType]] = {}  # by thread, the generators in which the last pass ended, until the next begins
        self._wrapped: list[tuple[type, str, Call, Call]] = []
        self._subclass_hook: Any = None
        self._process = 0
        self._numbers = count(1)
        self.fetched: dict[int, FetchedPasses] = {}
        self._making = threading.Lock()

    def add(self, loop: FollowedLoop) -> None:
        """Begin to follow a loop; passes that began before are reported again."""
        with changing_listeners:
            if not self.loops:
                self._process = os.getpid()
                self._wrap()
            loop.thread, loop.trained = self._thread_of_a_loop(), False
            self.loops = (*self.loops, loop)
        fetched = self.fetched.get(loop.thread)
        for watched in (*(fetched.passes if fetched is not None else ()), *self._known(loop.thread)):
            self._report_again(watched, loop)

    def _thread_of_a_loop(self) -> int:
        """The thread of the caller, unless it has pulled no batch and a loop is under way in another one, whose batches it may evaluate."""
        here = get_ident()
        if self._is_under_way(here):
            return here
        others = [loop.thread for loop in reversed(self.loops) if _is_alive(loop.thread)]
        return next((thread for thread in others if self._is_under_way(thread)), here)

    def _is_under_way(self, thread: int) -> bool:
        """Whether a pass that is not over has given batches to a thread."""
        return any(watched.pulls for watched in self._known(thread))

    def follow(self, loop: FollowedLoop) -> None:
        """A training call comes in this thread: the loop runs in it, unless the thread that trained before continues.

        The passes of the former thread are over for the loop, since it is not told of their further batches: a step must not wait for one.
        """
        if loop.trained and _is_alive(loop.thread):
            return
        former = [watched.key for watched in self._known(loop.thread) if watched.key in loop.reported]
        loop.reported.difference_update(former)
        for key in former:
            loop.listener.pass_deleted(key)
        loop.thread, loop.trained = get_ident(), False
        for watched in self._known(loop.thread):
            if watched.key not in loop.reported:
                self._report_again(watched, loop)

    def optimizer_stepped(self, loop: FollowedLoop) -> None:
        """An optimizer has stepped the model of a loop in this thread."""
        loop.trained = loop.trained or get_ident() == loop.thread
        fetched = self.fetched.get(loop.thread)
        if fetched is not None:
            fetched.due = True

    def listeners(self, thread: int) -> list[LoaderListener]:
        """The listeners whose loops run in a thread."""
        return [loop.listener for loop in self.loops if loop.thread == thread]

    def _known(self, thread: int) -> list[WatchedPass]:
        """The passes of a thread that are not over, in the order of their last pulls."""
        every = {watched.key: watched for watched in (*list(self._passes.values()), *list(self._outer.values()))}
        return sorted((watched for watched in every.values() if watched.thread == thread), key=attrgetter("last_pull"))

    def _report_again(self, watched: WatchedPass, loop: FollowedLoop) -> None:
        listener = loop.listener
        loop.reported.add(watched.key)
        listener.pass_begins(watched.key, watched.loader, endless=watched.endless, skipped=watched.skipped)
        if watched.loader not in self._loaders.values():
            listener.loader_deleted(watched.loader)
        for pull in range(1 + watched.ahead if watched.pulls and watched.thread == loop.thread else 0):
            last = watched.pulls == watched.length and pull == watched.ahead
            listener.batch_pulled(watched.key, grad=watched.grad, last=last, before=True)

    def model_called(self) -> None:
        """A model was called, whichever it is: the batches pulled in this thread are in use."""
        thread = get_ident()
        for watched in [one for one in self._unserved if one.thread == thread]:
            watched.served += 1
            self._unserved.remove(watched)

    def remove(self, loop: FollowedLoop) -> None:
        """Stop following a loop; a method that the program has replaced since stays the program's."""
        fetched = self.fetched.get(loop.thread)
        if fetched is not None:
            fetched.end(loop.listener)
        with changing_listeners:
            self.loops = tuple(one for one in self.loops if one is not loop)
            if not self.loops:
                self._unwrap()
        loop.reported.clear()
        loop.gone.clear()

    def _unwrap(self) -> None:
        for kind, name, original, ours in self._wrapped:
            if vars(kind).get(name) is ours:
                setattr(kind, name, original)
        self._wrapped.clear()
        if vars(DataLoader).get("__init_subclass__") is self._subclass_hook:
            del DataLoader.__init_subclass__
        self.seen = None
        self._streams.clear()
        for fetched in self.fetched.values():
            fetched.passes.clear()
        self._passes.clear()
        self._outer.clear()
        self._loaders.clear()

    @runs_eagerly
    def settle(self) -> None:
        """Report deleted passes and loaders; the garbage collector queues them at any time."""
        thread = get_ident()
        for loop in self.loops:
            while loop.gone and loop.thread == thread:
                event, key = loop.gone.popleft()
                getattr(loop.listener, event)(key)

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
        thread = get_ident()
        endless = any(one is known for one in _generators(frame) for known in self._streams.pop(thread, ()))
        known = next(self._numbers), self._key(loader), thread, endless
        watched = WatchedPass(*known, skipped=_skipped(loader), length=_length(loader))
        for loop in self.loops:
            if loop.thread == thread:
                loop.reported.add(watched.key)
                loop.listener.pass_begins(watched.key, watched.loader, endless=endless, skipped=watched.skipped)
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
                self._fetch(watched)
            try:
                batch = original(iterator)
            except StopIteration:
                self._exhausted(watched, sys._getframe(1))
                raise
            self._pulled(watched)
            return batch

        return __next__

    @runs_eagerly
    def _fetch(self, watched: WatchedPass) -> None:
        """Another thread than the one that made an iterator begins to pull from it."""
        with self._making:  # several threads may fetch
            if any(loop.thread == watched.thread for loop in self.loops):
                self.fetched.setdefault(watched.thread, FetchedPasses()).passes.append(watched)
        watched.thread = get_ident()
        for loop in self.loops:
            loop.reported.discard(watched.key)

    @runs_eagerly
    def _pulled(self, watched: WatchedPass) -> None:
        self.settle()
        watched.pulls, watched.last_pull, watched.grad = watched.pulls + 1, next(self._numbers), torch.is_grad_enabled()
        if watched not in self._unserved:
            self._unserved.append(watched)
        for listener in self.listeners(watched.thread):
            listener.batch_pulled(watched.key, grad=watched.grad, last=watched.pulls == watched.length, before=False)

    @runs_eagerly
    def _exhausted(self, watched: WatchedPass, frame: FrameType) -> None:
        listeners = self.listeners(watched.thread)
        if not listeners:
            watched.over = True
            return
        self.settle()
        self._streams = {thread: frames for thread, frames in self._streams.items() if _is_alive(thread)}
        self._streams[watched.thread] = _generators(frame)
        for listener in listeners:
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
            kept = [fetched.lose(watched) for fetched in list(self.fetched.values())]
            if any(kept):
                return
            for loop in self.loops:
                loop.reported.discard(watched.key)
                if watched.over:
                    loop.gone.append(("pass_exhausted", watched.key))
                loop.gone.append(("pass_deleted", watched.key))

    def _lose_loader(self, loader: int) -> None:
        key = self._loaders.pop(loader, None)
        self._outer.pop(loader, None)
        if key is None:
            return
        for loop in self.loops:
            loop.gone.append(("loader_deleted", key))

    @runs_eagerly
    def _is_here(self) -> bool:
        """Whether this is the program's own process; nothing is counted in a worker."""
        return bool(self.loops) and os.getpid() == self._process


def _is_alive(thread: int) -> bool:
    return any(one.ident == thread for one in threading.enumerate())


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
