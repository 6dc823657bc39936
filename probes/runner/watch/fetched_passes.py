"""Passes that the loop has begun, and whose batches another thread fetches, as through a queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from probes.runner.clock.batch_passes import TRAIN
from probes.runner.watch.watched_pass import LoaderListener, WatchedPass


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
