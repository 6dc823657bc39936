"""Passes that the loop has begun, and whose batches another thread fetches, as behind a queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from probes.runner.watch.watched_pass import LoaderListener, WatchedPass

TRAIN = "train"


@dataclass
class FetchedPasses:
    """Reports when the loop comes to a batch, since the thread that fetches it is ahead: at the first training call after a step.

    Attributes:
        passes: in the order in which the other thread began to fetch.
        due: whether an optimizer has stepped since the last batch was reported.
    """

    passes: list[WatchedPass] = field(default_factory=list)
    due: bool = True

    def called(self, phase: str, listeners: Sequence[LoaderListener]) -> None:
        """A call in the loop's thread; a training call is on the pass that was begun last, unless that one was evaluated on.

        Args:
            phase: `train` or `eval`, of the call.
            listeners: who hears of the batch.
        """
        newest = self.passes[-1]
        if phase != TRAIN:
            newest.used = newest.used or phase
            return
        former = [one for one in self.passes[:-1] if one.used == TRAIN]
        if newest.used != TRAIN and not (newest.used and former):
            self._begin(newest, former, listeners)
        if self.due:
            self.due = False
            current = next(one for one in reversed(self.passes) if one.used == TRAIN)
            for listener in listeners:
                listener.batch_pulled(current.key, grad=True, last=current.over or current.pulls == current.length, before=False)

    def _begin(self, newest: WatchedPass, former: list[WatchedPass], listeners: Sequence[LoaderListener]) -> None:
        for one in former:
            for listener in listeners if one.over else ():
                listener.pass_exhausted(one.key)
            one.over = False
        newest.used, self.due = TRAIN, True
        del self.passes[: self.passes.index(newest)]  # in its place: the other thread may append meanwhile

    def lose(self, watched: WatchedPass) -> None:
        """The iterator of a pass is gone; one that was evaluated on is not come back to."""
        if watched.used not in ("", TRAIN) and watched in self.passes:
            self.passes.remove(watched)

    def end(self, listener: LoaderListener) -> None:
        """The listener is about to leave: what was fetched to its end has come to it."""
        for one in self.passes:
            if one.over and one.used == TRAIN:
                listener.pass_exhausted(one.key)
