"""`check_sink` finds each broken rule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from probes.component import Reading, Sink, SinkContext, SinkSession
from probes.testing import check_sink


class Fine(Sink):
    """Writes one line for each reading."""

    kind: Literal["acme.fine"] = "acme.fine"

    def files(self) -> tuple[str, ...]:
        return ("table.csv",)

    def open(self, context: SinkContext) -> SinkSession:
        return Session(context.files[0])


class Session:
    """Appends lines to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def step(self, readings: Sequence[Reading]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(f"{reading.clock.step},{reading.numbers}\n" for reading in readings)

    def close(self) -> None:
        pass


class TwiceTheName(Fine):
    """Declares one file twice."""

    def files(self) -> tuple[str, ...]:
        return ("table.csv", "table.csv")


class OutsideName(Fine):
    """Declares a file elsewhere."""

    def files(self) -> tuple[str, ...]:
        return ("../table.csv",)


class TakesNothing(Fine):
    """Has a limit of 0."""

    def most_elements(self) -> int:
        return 0


class Undeclared(Fine):
    """Writes a file that it does not declare."""

    def open(self, context: SinkContext) -> SinkSession:
        return Session(context.files[0].with_name("other.csv"))


class Rewrites(Fine):
    """Writes the file from its start at each session."""

    def open(self, context: SinkContext) -> SinkSession:
        context.files[0].unlink(missing_ok=True)
        return Session(context.files[0])

    def most_elements(self) -> int:
        return 8


class _Late(Session):
    def step(self, readings: Sequence[Reading]) -> None:
        pass

    def close(self) -> None:
        self.path.write_text("all", encoding="utf-8")


class WritesLate(Fine):
    """Writes when it is closed."""

    def open(self, context: SinkContext) -> SinkSession:
        return _Late(context.files[0])


class _Printing(Session):
    def step(self, readings: Sequence[Reading]) -> None:
        print(len(readings))


class Prints(Fine):
    """Writes to stdout."""

    def open(self, context: SinkContext) -> SinkSession:
        return _Printing(context.files[0])


class _Changing(Session):
    def step(self, readings: Sequence[Reading]) -> None:
        readings[0].numbers.clear()


class Changes(Fine):
    """Changes the readings."""

    def open(self, context: SinkContext) -> SinkSession:
        return _Changing(context.files[0])


class _Drawing(Session):
    def step(self, readings: Sequence[Reading]) -> None:
        random.random()


class Draws(Fine):
    """Draws from a global generator."""

    def open(self, context: SinkContext) -> SinkSession:
        return _Drawing(context.files[0])


def test_a_sound_sink_passes() -> None:
    check_sink(Fine())


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (TwiceTheName(), "has a name twice"),
        (OutsideName(), "plain file in the run directory"),
        (TakesNothing(), "no capture could be taken"),
        (Undeclared(), '"other.csv", which `files` does not declare'),
        (Rewrites(), "does not keep what the first wrote"),
        (WritesLate(), "only when it is closed"),
        (Prints(), "writes to stdout"),
        (Changes(), "changes the readings"),
        (Draws(), "draws from a global random generator"),
    ],
    ids=lambda item: type(item).__name__,
)
def test_each_broken_rule_is_named(broken: Sink, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_sink(broken)
