"""A progress line on the terminal for verbs that take longer than a second."""

from __future__ import annotations

import sys
import time
from threading import Event, Thread
from typing import Any

import click

from probes.progress.loops import reported_to
from probes.progress.status_line import PAUSE, StatusLine

PATIENCE_S = 1.0


class LongCommand(click.Command):
    """A verb that may take long: shows the progress of its loops on stderr, if that is a terminal."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        if not sys.stderr.isatty():
            return super().invoke(ctx)
        with AdvanceLine(self.name or "") as line, reported_to(line):
            return super().invoke(ctx)


class AdvanceLine:
    """Shows the loops of a verb: `verify file 4 of 12, series 120 of 800  8 s`.

    A thread draws the line, so that it also continues inside a long item. Between loops nothing is drawn: the verb may ask something there,
    or run another program.

    Args:
        verb: its name, which begins the line.
    """

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self._line = StatusLine(sys.stderr, (sys.stdout,))
        self.loops: list[tuple[str, int, int]] = []
        self._began = time.monotonic()
        self._over = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> AdvanceLine:
        self._line.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._line.__exit__()

    def begin(self, noun: str, total: int) -> None:
        """A loop begins."""
        self.loops.append((noun, 0, total))
        if self._thread is None:
            self._thread = Thread(target=self._draw, name="probes-advance", daemon=True)
            self._thread.start()

    def at(self, index: int) -> None:
        """The innermost loop is at an item."""
        noun, _, total = self.loops[-1]
        self.loops[-1] = (noun, index, total)

    def end(self) -> None:
        """The innermost loop is over."""
        self.loops.pop()
        if not self.loops:
            self._line.take_back()

    def _draw(self) -> None:
        while not self._over.wait(PAUSE):
            loops, spent = [*self.loops], time.monotonic() - self._began
            if loops and spent > PATIENCE_S:
                places = ", ".join(f"{noun} {index:,} of {total:,}" for noun, index, total in loops)
                self._line.show(f"{self.verb}  {places}  {spent:.0f} s")
