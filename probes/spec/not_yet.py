"""What version 1 of the spec has and this release does not do yet: refused, never ignored."""

from __future__ import annotations

from typing import Any

from probes.document import Document, Path
from probes.errors import Problem
from probes.spec.compose import problem

# Place in the spec (`*` is any name) -> what it would do. When the work is there, its row goes.
NOT_YET: dict[tuple[str, ...], str] = {}


def take_out(document: Document) -> list[Problem]:
    """Remove from the data what is not supported yet, and say so at each place."""
    problems = []
    for pattern, what in NOT_YET.items():
        for holder, path in _found(document.data, pattern):
            problems.append(
                problem(document, path, "not-supported-yet", f"{what} is not supported by this release", "leave it out", key=True)
            )
            del holder[str(path[-1])]
    return problems


def _found(data: Any, pattern: tuple[str, ...], path: Path = ()) -> list[tuple[dict[str, Any], Path]]:
    """The mappings that hold a key at a place, with the paths of the key."""
    if not isinstance(data, dict):
        return []
    names = [*data] if pattern[0] == "*" else [name for name in pattern[:1] if name in data]
    if len(pattern) == 1:
        return [(data, (*path, name)) for name in names]
    return [found for name in names for found in _found(data[name], pattern[1:], (*path, name))]
