"""A pass over a DataLoader that is watched, and its listeners."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol


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
        reported: whether it was reported to the listeners.
        used: the phase of the first call after it began, if another thread fetches its batches.
        over: whether that thread has ended, which was not reported to the listeners yet.
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
    reported: bool = False
    used: str = ""
    over: bool = False
    lost: bool = False

    @property
    def ahead(self) -> int:
        """Batches pulled since a model was last called."""
        return self.pulls - max(self.served, 1)
