"""Faults across keys, and the rules that find them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from probes.spec.partial import Unreadable, readable


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
