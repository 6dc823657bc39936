"""Substitution in long texts: a pattern is tried only near the literals that each of its matches contains.

`str.find` passes over a gigabyte in a second, a pattern of alternatives over a few megabytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from heapq import merge

Places = Callable[["Haystack"], Iterator[int]]


class Haystack:
    """A text with fast search for literals.

    Attributes:
        text: what is searched.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._found: dict[tuple[str, ...], list[int]] = {}

    @cached_property
    def lower(self) -> str:
        """The text in lower case, character by character, as case-insensitive patterns compare it."""
        lowered = self.text.lower()
        if len(lowered) != len(self.text):  # one capital has a lower case of two characters
            lowered = "".join(small if len(small := c.lower()) == 1 else c for c in self.text)
        return lowered if lowered.isascii() else lowered.replace("\u017f", "s")

    def at(self, literals: tuple[str, ...]) -> list[int]:
        """The positions of any of some lower-case literals, ascending."""
        if literals not in self._found:
            self._found[literals] = list(merge(*(_all(self.lower, one) for one in literals)))
        return self._found[literals]

    def replaced(self, pattern: re.Pattern[str], replacement: str, places: Iterable[int]) -> Haystack:
        """The result of `pattern.sub`.

        Args:
            pattern: what is replaced.
            replacement: as `re.Match.expand` takes it.
            places: where every match begins, and perhaps more; ascending.
        """
        out: list[str] = []
        done, tried = 0, -1
        for place in places:
            start = max(place, done)
            if start == tried:
                continue
            tried = start
            found = pattern.match(self.text, start)
            if found is not None:
                out += [self.text[done:start], found.expand(replacement)]
                done, tried = found.end(), -1
        return Haystack("".join([*out, self.text[done:]])) if out else self


def _all(text: str, literal: str) -> Iterator[int]:
    at = text.find(literal)
    while at >= 0:
        yield at
        at = text.find(literal, at + 1)


def names(keywords: tuple[str, ...], tail: re.Pattern[str], before: int = 0) -> Places:
    """The beginnings of names with a keyword, if the text after the keyword matches the tail.

    Args:
        keywords: in lower case.
        tail: matches from the keyword on, in lower case.
        before: how many characters before the name belong to it.
    """

    def places(hay: Haystack) -> Iterator[int]:
        known, first = -1, 0  # the last position that was checked, and the beginning of its name
        for at in hay.at(keywords):
            if tail.match(hay.lower, at):
                first = _beginning(hay.text, at, known, first)
                known = at
                if first >= before:
                    yield first - before

    return places


def _beginning(text: str, at: int, known: int, first: int) -> int:
    """The beginning of the letters, digits, `_`, `.` and `-` before a position; each name is scanned once, for all its keywords."""
    while at > 0 and ((c := text[at - 1]).isalnum() or c in "_.-"):
        at -= 1
        if at == known:
            return first
    return at


def behind(literals: tuple[str, ...], tail: re.Pattern[str]) -> Places:
    """The end of a tail that begins with a literal, both in lower case."""

    def places(hay: Haystack) -> Iterator[int]:
        for at in hay.at(literals):
            found = tail.match(hay.lower, at)
            if found is not None:
                yield found.end()

    return places


def lines(keywords: tuple[str, ...], tail: re.Pattern[str]) -> Places:
    """The beginnings of lines with a keyword, if the text after the keyword matches the tail, in lower case."""

    def places(hay: Haystack) -> Iterator[int]:
        first = 0
        for at in hay.at(keywords):
            if tail.match(hay.lower, at):
                first = hay.text.rfind("\n", first, at) + 1 or first
                yield first

    return places


def long_words(text: str, characters: str, least: int) -> Iterator[tuple[int, int]]:
    """Beginning and end of each run of so many characters of a set; all that are not ASCII count as of the set.

    Args:
        text: what is searched.
        characters: ASCII characters in addition to letters and digits.
        least: the fewest characters of a run.
    """
    table = bytes(_IN if chr(code) in characters or chr(code).isalnum() or code > 127 else _OUT for code in range(256))
    shape = text.encode("latin-1", "replace") if text.isascii() else text.replace("?", " ").encode("ascii", "replace").replace(b"?", b"0")
    shape = shape.translate(table)
    run = bytes([_IN]) * least
    start = shape.find(run)
    while start >= 0:
        end = shape.find(_OUT, start)
        end = len(shape) if end < 0 else end
        yield start, end
        start = shape.find(run, end)


_IN, _OUT = ord("a"), ord(" ")
