"""Print a line on the terminal for each series and step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from probes.component import Number, Reading, Sink, SinkContext, SinkSession
from probes.printable import invisible
from probes.progress.stderr import tell


class Console(Sink):
    """Prints small captures on the terminal (stderr), one line for each series and committed step."""

    kind: Literal["console"] = "console"
    max_elements: int = Field(default=16, ge=1, le=256, description="Largest number of elements of a capture; a larger capture is refused.")

    def most_elements(self) -> int:
        """`max_elements`."""
        return self.max_elements

    def open(self, context: SinkContext) -> SinkSession:
        """Start a session; on other ranks than 0 each line has the rank."""
        return _Terminal(context.rank)


class _Terminal:
    """Prints readings on stderr."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def step(self, readings: Sequence[Reading]) -> None:
        """Print the lines of one step in one write."""
        tell("\n".join(line(reading, self.rank) for reading in readings))

    def close(self) -> None:
        """Leave the terminal as it is."""


def line(reading: Reading, rank: int = 0) -> str:
    """One line: the place in the run, the series, the numbers with four digits."""
    clock, key = reading.clock, reading.key
    place = f"epoch {clock.epoch} step {clock.step}" + (f" of {key.phase}" if key.phase != "train" else "")
    times = (("microstep", clock.microstep), ("call", clock.call), ("backward", clock.backward))
    extra = "".join(f" {name} {count}" for name, count in (*times, ("rank", rank)) if count > 0)
    numbers = "  ".join(f"{label} {_short(number)}".lstrip() for label, number in reading.numbers.items())
    name = f"{key.probe}/{key.target}:{key.leaf}"
    return "".join("\ufffd" if invisible(c) is not None else c for c in f"{place}{extra}  {name}  {numbers}")


def _short(number: Number) -> str:
    return f"{number:.4g}" if isinstance(number, float) else str(number).lower()
