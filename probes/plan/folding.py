"""Rows that differ in numbers of their paths only, as one row: `layer.{0..11}`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import product
from typing import NamedTuple


class Fold(NamedTuple):
    """Rows that are told as one.

    Attributes:
        label: their path, with `{0..3}` for a level that they differ in.
        members: indices of the rows.
    """

    label: str
    members: tuple[int, ...]


def fold(rows: Sequence[tuple[str, Hashable]]) -> list[Fold]:
    """Fold rows that are alike and whose paths fill a grid of numbers.

    Args:
        rows: dotted path and what has to be equal of each.

    Returns:
        Folds in the order of their first rows.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, (path, alike) in enumerate(rows):
        groups.setdefault((_template(path), alike), []).append(index)
    return sorted((one for members in groups.values() for one in _folds(rows, members)), key=lambda one: one.members[0])


def _template(path: str) -> tuple[str, ...]:
    return tuple("#" if _is_number(level) else level for level in path.split("."))


def _is_number(level: str) -> bool:
    return level.isdecimal() and str(int(level)) == level


def _folds(rows: Sequence[tuple[str, Hashable]], members: list[int]) -> list[Fold]:
    paths = [rows[index][0].split(".") for index in members]
    label = _label(paths) if len(members) > 1 else None
    return [Fold(label, tuple(members))] if label is not None else [Fold(rows[index][0], (index,)) for index in members]


def _label(paths: list[list[str]]) -> str | None:
    """One path for all, or None where their numbers do not fill a grid without gaps."""
    columns = [list(dict.fromkeys(column)) for column in zip(*paths, strict=True)]
    if len(paths) != len({*map(tuple, paths)}) or {*map(tuple, paths)} != {*product(*columns)}:
        return None
    levels = []
    for column in columns:
        if len(column) == 1:
            levels.append(column[0])
            continue
        numbers = sorted(map(int, column))
        if numbers != list(range(numbers[0], numbers[-1] + 1)):
            return None
        levels.append(f"{{{numbers[0]}..{numbers[-1]}}}")
    return ".".join(levels)
