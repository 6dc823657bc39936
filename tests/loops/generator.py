"""The source of generated programs: hypothesis, which shrinks failing ones, or a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.loops.programs import Choice, Program, program
from tests.loops.scripts_made import Written, script
from tests.loops.truth import Truth


class Seeded:
    """Choices out of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choice(self, options: Sequence[Choice]) -> Choice:
        """One of some."""
        return self._random.choice(options)

    def number(self, least: int, most: int) -> int:
        """A number, both ends included."""
        return self._random.randint(least, most)


class Shrinking:
    """Choices out of hypothesis."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self._draw = draw

    def choice(self, options: Sequence[Choice]) -> Choice:
        """One of some; the first is the simplest."""
        found: Choice = self._draw(st.sampled_from(options))
        return found

    def number(self, least: int, most: int) -> int:
        """A number, both ends included; the least is the simplest."""
        found: int = self._draw(st.integers(least, most))
        return found


@st.composite
def programs(draw: Callable[..., Any]) -> Program:
    """Any program around `attach`."""
    return program(Shrinking(draw))


def seeded(seed: int) -> Program:
    """The program of a seed."""
    return program(Seeded(seed))


def seeded_script(seed: int) -> Truth:
    """The whole script of a seed, with its truth."""
    return made(Written(script(Seeded(seed))))


@st.composite
def scripts(draw: Callable[..., Any]) -> Truth:
    """Any whole script, with its truth."""
    return made(Written(script(Shrinking(draw))))


def made(written: Written) -> Truth:
    """A made-up script with its truth."""
    return Truth("generated", "", str(written.chosen), written.truth, written.text)
