"""Telling the training loader from the others: when it is pulled from, and when it starts anew."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter


class Pulls(Protocol):
    """The part of a timeline that follows a training loader."""

    has_loader: bool

    def pulled(self) -> None:
        """The training loader was asked for the next batch."""

    def pass_begins(self) -> None:
        """The training loader starts anew."""


class Pass:
    """One pass over a loader.

    Attributes:
        loader: the loader, held weakly; None where its iterator was made before we looked.
        over: whether it is exhausted.
    """

    def __init__(self, iterator: Any, loader: Any) -> None:
        self.iterator = weakref.ref(iterator)
        self.loader = weakref.ref(loader) if loader is not None else None
        self.over = False

    @property
    def live(self) -> bool:
        """Whether more can be pulled from it."""
        return not self.over and self.iterator() is not None

    def same_loader(self, other: Pass) -> bool:
        """Whether two passes go over one loader."""
        mine = self.loader() if self.loader is not None else None
        return mine is not None and other.loader is not None and mine is other.loader()


class Loaders:
    """Watches every DataLoader of the program.

    The training loader is the one being iterated when a call of phase `train` enters: of those pulled from since the
    call before, the first that still lives, since the loop over it stands outside of the others. Its next pass begins with
    the first training call that it feeds; a mere look at a batch does not begin one.
    """

    def __init__(self) -> None:
        self.timeline: Pulls | None = None
        self.dataset = ""
        self._passes: weakref.WeakKeyDictionary[Any, Pass] = weakref.WeakKeyDictionary()
        self._pending: list[Pass] = []
        self._training: list[Pass] = []
        self._main: Pass | None = None
        self._place = (os.getpid(), threading.get_ident())
        self._originals: tuple[Any, Any] | None = None

    def start(self) -> None:
        """Begin to watch."""
        begin, pull = DataLoader.__iter__, _BaseDataLoaderIter.__next__
        self._originals = (begin, pull)
        watch = self

        def __iter__(loader: Any) -> Any:  # noqa: N807 - it stands in for the method
            return watch.began(loader, begin(loader))

        def __next__(iterator: Any) -> Any:  # noqa: N807 - it stands in for the method
            return watch.pull(iterator, pull)

        DataLoader.__iter__ = __iter__  # type: ignore[method-assign]  # restored by `stop`
        _BaseDataLoaderIter.__next__ = __next__  # type: ignore[assignment, method-assign]  # restored by `stop`

    def stop(self) -> None:
        """Take everything back."""
        if self._originals is not None:
            DataLoader.__iter__, _BaseDataLoaderIter.__next__ = self._originals  # type: ignore[method-assign]  # put back as they were
            self._originals = None
        self.timeline = None

    def began(self, loader: Any, iterator: Any) -> Any:
        """An iterator was made, or a persistent one was reset."""
        if self._here():
            self._passes[iterator] = Pass(iterator, loader)
        return iterator

    def pull(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """One batch; nothing is counted in a worker process or a prefetching thread."""
        if not self._here():
            return original(iterator)
        current = self._passes.get(iterator)
        if current is None:
            current = self._passes[iterator] = Pass(iterator, None)
        if current in self._training and self.timeline is not None:
            self.timeline.pulled()
        elif current not in self._pending:
            self._pending.append(current)
        try:
            return original(iterator)
        except StopIteration:
            self._exhausted(current)
            raise

    def _exhausted(self, current: Pass) -> None:
        current.over = True
        self._training = [one for one in self._training if one.live]
        if not self._training and self.timeline is not None:
            self.timeline.has_loader = False  # what comes now, such as the rest of an `itertools.cycle`, is not pulled

    def enters(self, phase: str) -> None:
        """An outermost call of the model is about to be counted."""
        pending, self._pending = [one for one in self._pending if one.live], []
        if phase == "train" and pending and self.timeline is not None:
            self._adopt(pending[0], self.timeline)

    def _adopt(self, current: Pass, timeline: Pulls) -> None:
        """Take a loader for the training loader."""
        if self._main is None or not self._main.live or self._main.same_loader(current):
            self._main = current
            timeline.pass_begins()
        self._training = [*(one for one in self._training if one.live), current]
        self.dataset = self.dataset or _dataset(current)
        timeline.pulled()

    def _here(self) -> bool:
        return (os.getpid(), threading.get_ident()) == self._place


def _dataset(current: Pass) -> str:
    loader = current.loader() if current.loader is not None else None
    return type(loader.dataset).__name__ if loader is not None else ""
