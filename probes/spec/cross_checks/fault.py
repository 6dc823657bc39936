"""Faults across keys, and the rules that find them.

Rules run on a spec also where some of its places cannot be read (`probes.spec.partial`). A rule that reads such a place stops there, since
whatever it would say may be wrong; all other rules continue. So faults across keys are reported together with the faults within them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")


class Unreadable(Exception):
    """A rule has read a place of the spec that cannot be read."""


@dataclass(frozen=True)
class Fault:
    """A contradiction between two parts of a spec.

    Attributes:
        code: kebab-case name of the kind of problem.
        message: what was found, and what is allowed.
        at: the place, below the part that was checked.
        hint: what to do; may be empty.
        key: whether the caret points at the key rather than at its value.
    """

    code: str
    message: str
    at: tuple[str | int, ...] = ()
    hint: str = ""
    key: bool = False


Faults = Iterator[Fault]
Rules = tuple[Callable[..., Faults], ...]


def checked(rules: Iterable[Callable[..., Faults]], at: tuple[str, ...], *parts: Any) -> Faults:
    """The faults that rules find, each with its place; a rule that reads an unreadable place stops."""
    for rule in rules:
        try:
            for fault in rule(*parts):
                yield replace(fault, at=(*at, *fault.at))
        except Unreadable:
            continue


def repeated(key: str) -> Callable[[Any], Faults]:
    """The rule that no member of a list is repeated."""

    def rule(part: Any) -> Faults:
        members = getattr(part, key)
        if not members or len(members) < 2:
            return
        seen: Counter[object] = Counter()
        for index, member in readable(members):
            seen[member] += 1
            if seen[member] > 1:
                yield Fault("no-effect", f"`{member}` is listed twice; the second has no effect", (key, index), "remove one of them")

    return rule


def readable(members: Sequence[T]) -> Iterator[tuple[int, T]]:
    """The readable members of a list, with their indices."""
    yield from _readable(members, range(len(members)))


def readable_items(members: Mapping[str, T]) -> Iterator[tuple[str, T]]:
    """The readable members of a mapping, with their names."""
    yield from _readable(members, members)


def _readable(members: Any, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    for key in keys:
        try:
            yield key, members[key]
        except Unreadable:
            continue
