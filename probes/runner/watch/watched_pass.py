"""Passes over DataLoaders that are watched, also those whose batches another thread fetches, and their listeners."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from probes.runner.clock.batch_passes import TRAIN


class LoaderListener(Protocol):
    """A listener to passes over loaders."""

    def pass_begins(self, key: Hashable, loader: Hashable, *, endless: bool, skipped: int) -> None:
        """A loader begins to be iterated over; `skipped`, the batches that it states to leave out at its beginning."""

    def batch_pulled(self, key: Hashable, *, grad: bool, last: bool, before: bool) -> None:
        """A batch is requested; `grad`, whether gradients are on; `before`, whether it was requested before the listener was there."""

    def pass_exhausted(self, key: Hashable) -> None:
        """A pass has no more batches."""

    def pass_deleted(self, key: Hashable) -> None:
        """Nobody holds the iterator of a pass any more."""

    def loader_deleted(self, loader: Hashable) -> None:
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
        skipped: batches that the loader states to leave out at its beginning.
        length: batches that the pass has; -1 if that is not known.
        last_pull: number of its last pull among those of all passes.
        thread: the thread that began it, or has pulled from it since.
        used: the phase of the first call after it began, if another thread fetches its batches.
        over: whether that thread has ended, which was not reported to any listener yet.
        lost: whether its iterator was deleted, which was not reported either, since the loop is still at its batches.
    """

    key: int
    loader: int
    thread: int
    endless: bool = False
    skipped: int = 0
    length: int = -1
    last_pull: int = 0
    pulls: int = 0
    served: int = 0
    grad: bool = True
    used: str = ""
    over: bool = False
    lost: bool = False

    @property
    def ahead(self) -> int:
        """Batches pulled since a model was last called."""
        return self.pulls - max(self.served, 1)


@dataclass(eq=False, slots=True)
class FollowedLoop:
    """The loop whose passes a listener gets.

    Attributes:
        listener: who gets them.
        thread: the thread that the loop runs in.
        trained: whether an optimizer has stepped the listener's model in this thread.
        reported: the passes that were reported, by key.
        gone: events of passes and loaders that were deleted, as the garbage collector queues them at any time, in any thread.
    """

    listener: LoaderListener
    thread: int = 0
    trained: bool = False
    reported: set[int] = field(default_factory=set)
    gone: deque[tuple[str, int]] = field(default_factory=deque)


@dataclass
class FetchedPasses:
    """Reports a batch when the loop uses it, since the thread that fetches is ahead: at the first training call after a step.

    Attributes:
        passes: in the order in which the other thread began to fetch.
        due: whether an optimizer has stepped since the last batch was reported.
    """

    passes: list[WatchedPass] = field(default_factory=list)
    due: bool = True

    def called(self, phase: str, listeners: Sequence[LoaderListener], *, fed: bool) -> None:
        """A call in the loop's thread; a training call is on the pass that was begun last, unless that one was evaluated on.

        Args:
            phase: `train` or `eval`, of the call.
            listeners: they receive the batch.
            fed: whether the loop itself has pulled a batch for a training call; it is on that one where the other thread is done.
        """
        newest = self.passes[-1]
        if phase != TRAIN:
            newest.used = newest.used or phase
            return
        former = [one for one in self.passes[:-1] if one.used == TRAIN]
        if newest.used != TRAIN and not (newest.used and former):
            self._begin(newest, former, listeners)
        current = next(one for one in reversed(self.passes) if one.used == TRAIN)
        if self.due and not (fed and current.over):
            self.due = False
            for listener in listeners:
                listener.batch_pulled(current.key, grad=True, last=current.over or current.pulls == current.length, before=False)

    def _begin(self, newest: WatchedPass, former: list[WatchedPass], listeners: Sequence[LoaderListener]) -> None:
        for one in former:
            for listener in listeners if one.over else ():
                listener.pass_exhausted(one.key)
            for listener in listeners if one.lost else ():
                listener.pass_deleted(one.key)
            one.over = one.lost = False
        newest.used, self.due = TRAIN, True
        del self.passes[: self.passes.index(newest)]  # in place: the other thread may append meanwhile

    def lose(self, watched: WatchedPass) -> bool:
        """The iterator of a pass was deleted; whether the loop may still use its batches. It never uses evaluated ones again."""
        if watched not in self.passes:
            return False
        if watched.used not in ("", TRAIN):
            self.passes.remove(watched)
            return False
        watched.lost = True
        return True

    def end(self, listener: LoaderListener) -> None:
        """The listener is about to leave: passes that were fetched completely have ended for it."""
        for one in self.passes:
            if one.over and one.used == TRAIN:
                listener.pass_exhausted(one.key)
