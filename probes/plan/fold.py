"""Rows whose paths differ only in numbers, as one row: `layer.{0..11}`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

Paths = dict[int, list[str]]  # index of a row -> the levels of its path


class Fold(NamedTuple):
    """Rows that are shown as one row.

    Attributes:
        label: their path, with `{0..3}` for a level in which they differ.
        members: indices of the rows.
    """

    label: str
    members: tuple[int, ...]


def fold(rows: Sequence[tuple[str, Hashable]]) -> list[Fold]:
    """Fold rows that are equal and whose paths fill a grid of consecutive numbers.

    Args:
        rows: the dotted path of each row, and what must be equal in rows that are folded.

    Returns:
        Folds in the order of their first rows.
    """
    groups: dict[Hashable, Paths] = {}
    for index, (path, alike) in enumerate(rows):
        levels = path.split(".")
        template = tuple("#" if _is_number(level) else level for level in levels)
        groups.setdefault((template, alike), {})[index] = levels
    return sorted((one for paths in groups.values() for one in _folds(paths)), key=lambda one: one.members[0])


def _is_number(level: str) -> bool:
    return level.isdecimal() and str(int(level)) == level


def _folds(paths: Paths) -> Iterator[Fold]:
    """The folds of rows with one template: split at missing numbers; rows that form no grid stay single."""
    columns = [dict.fromkeys(column) for column in zip(*paths.values(), strict=True)]
    for place, column in enumerate(columns):
        runs = _runs(column) if len(column) > 1 else [[*column]]
        if len(runs) > 1:
            for run in runs:
                yield from _folds({index: levels for index, levels in paths.items() if levels[place] in run})
            return
    distinct = {tuple(levels) for levels in paths.values()}
    if len(distinct) == len(paths) and distinct == {*product(*columns)}:
        yield Fold(".".join(map(_level, columns)), tuple(paths))
    else:
        yield from (Fold(".".join(levels), (index,)) for index, levels in paths.items())


def _runs(column: dict[str, None]) -> list[list[str]]:
    """Numbers in consecutive ranges."""
    runs: list[list[str]] = []
    for number in sorted(map(int, column)):
        if runs and int(runs[-1][-1]) == number - 1:
            runs[-1].append(str(number))
        else:
            runs.append([str(number)])
    return runs


def _level(column: dict[str, None]) -> str:
    numbers = [*column]
    return numbers[0] if len(numbers) == 1 else f"{{{min(map(int, numbers))}..{max(map(int, numbers))}}}"
