"""Delivers readings in a separate thread, so that a slow tracker does not delay the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from queue import Empty, Full, Queue
from threading import Thread
from typing import Protocol

from probes.component import Reading
from probes.errors import ProbesError

MOST_WAITING = 10_000  # steps
MOST_AT_ONCE = 256  # steps
PAUSE = 0.5  # seconds in which steps are collected, so that a tracker gets several at once


class Tracker(Protocol):
    """A receiver of metrics; all its methods are called in one thread."""

    def write(self, steps: Sequence[Sequence[Reading]]) -> None:
        """Write the readings of some steps.

        Raises:
            Exception: they cannot be written; nothing more is sent.
        """

    def end(self, tags: Mapping[str, str]) -> None:
        """End the run.

        Args:
            tags: what is known about the run at its end: ledger head, captures roots.
        """


class BackgroundSession:
    """A session of a sink whose tracker is started, fed and ended in a separate thread.

    Args:
        start: connects to the tracker; called in the thread.
        closing: the tags of the end; called when the session is closed.
        wait: seconds that closing waits for what is still to be sent.
        give_up: called if that was not enough, while the tracker may be at work.
    """

    def __init__(
        self,
        start: Callable[[], Tracker],
        closing: Callable[[], Mapping[str, str]],
        wait: float,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self.start = start
        self.closing = closing
        self.wait = wait
        self.give_up = give_up
        self.waiting: Queue[Sequence[Reading] | Mapping[str, str]] = Queue(MOST_WAITING)
        self.failure: BaseException | None = None
        self.lost = 0
        self.thread = Thread(target=self._deliver, name="probes-tracker", daemon=True)
        self.thread.start()

    def step(self, readings: Sequence[Reading]) -> None:
        """Hand over the readings of one step; if too many wait already, they are counted as lost.

        Raises:
            OSError: the tracker failed.
        """
        self._raise_failure()
        try:
            self.waiting.put_nowait(list(readings))
        except Full:
            self.lost += 1

    def close(self) -> None:
        """Wait until all is sent, but not longer than `wait` seconds.

        Raises:
            OSError: the tracker failed, or some steps were not sent.
        """
        try:
            self.waiting.put(dict(self.closing()), timeout=self.wait)
            self.thread.join(self.wait)
        except Full:
            pass
        self._raise_failure()
        late = self.thread.is_alive()
        unsent = self.lost + (self.waiting.qsize() if late else 0)
        if late:
            self.give_up()
        if late or unsent:
            reason = f"it did not answer within {self.wait:g} s" if late else "it was too slow"
            raise OSError(f"{reason}; {unsent} steps are not in the tracker, and all are in the capture files")

    def _raise_failure(self) -> None:
        if isinstance(self.failure, ProbesError):
            raise self.failure
        if type(self.failure) is OSError:  # its text is the whole message, and it has no name of its own
            raise self.failure
        if self.failure is not None:
            lines = str(self.failure).strip().splitlines()
            raise OSError(f"{type(self.failure).__name__}: {lines[0] if lines else 'no message'}") from self.failure

    def _deliver(self) -> None:
        """The main function of the thread: start, send several steps at once, end."""
        try:
            tracker = self.start()
            while True:
                steps, tags = self._next()
                if steps:
                    tracker.write(steps)
                if tags is not None:
                    tracker.end(tags)
                    return
        except BaseException as error:  # the boundary: a tracker may raise anything, and `sys.exit` would end the thread unseen
            self.failure = error

    def _next(self) -> tuple[list[Sequence[Reading]], Mapping[str, str] | None]:
        """The waiting steps, once there is one, and the tags if the session is closed."""
        steps: list[Sequence[Reading]] = []
        entry = self.waiting.get()
        while not isinstance(entry, Mapping):
            steps.append(entry)
            if len(steps) == MOST_AT_ONCE:
                return steps, None
            try:
                entry = self.waiting.get(timeout=PAUSE)
            except Empty:
                return steps, None
        return steps, entry
