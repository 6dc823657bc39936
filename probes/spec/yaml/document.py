"""A YAML document as plain data, with the place of every key and value."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from probes.errors import Problem

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Mark:
    """The place of a key or a value.

    Attributes:
        file: the file as the user named it.
        line: 1-based.
        column: 1-based, in characters.
        width: characters that the caret line underlines.
        source: the line.
    """

    file: str
    line: int
    column: int
    width: int
    source: str


@dataclass
class Document:
    """Plain data and the place of each part of it.

    Attributes:
        data: mappings, lists, texts, whole numbers, finite numbers and booleans.
        keys: path -> place of the key (or of the list's item).
        values: path -> place of the value.
        problems: what is wrong with it so far.
        unreadable: the paths at which something is wrong.
    """

    data: Any = None
    keys: dict[Path, Mark] = field(default_factory=dict)
    values: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unreadable: set[Path] = field(default_factory=set)

    def copy(self) -> Document:
        """The document again, with its own data, places and problems."""
        return Document(deepcopy(self.data), dict(self.keys), dict(self.values), list(self.problems), set(self.unreadable))

    def refuse(self, path: Path, problem: Problem) -> None:
        """Add a problem; the value at its path cannot be read."""
        self.problems.append(problem.at(path=".".join(map(str, path))))
        self.unreadable.add(path)

    def at(self, path: Path, *, key: bool = False) -> Mark | None:
        """The place of a path, or of its nearest parent with a place."""
        for length in range(len(path), -1, -1):
            part = path[:length]
            mark = (self.keys if key or length < len(path) else self.values).get(part) or self.values.get(part)
            if mark is not None:
                return mark
        return None
