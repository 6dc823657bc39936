"""Which modules of a model a first spec should look at."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from probes.plan.outline import Outline, Row
from probes.plan.tree import Tree

MOST = 8  # targets that are listed one by one


@dataclass(frozen=True)
class Target:
    """A module, or blocks that repeat.

    Attributes:
        pattern: its path, or the glob of the blocks.
        kind: class name.
        count: how many modules the pattern matches.
    """

    pattern: str
    kind: str
    count: int


@dataclass(frozen=True)
class Suggestion:
    """What to look at first.

    Attributes:
        chosen: the blocks that repeat and hold most of the parameters; where nothing repeats, the parts of the model.
        others: further targets, outer ones first; a class is named once.
        trained: whether a chosen target has a weight that is trained.
    """

    chosen: tuple[Target, ...]
    others: tuple[Target, ...]
    trained: bool


def suggestion(tree: Tree) -> Suggestion:
    """The targets for a first spec on a model."""
    root, *below = Outline(tree).rows()
    rows = [row for row in below if row.nodes[0].runs and not row.shared]
    chosen = _blocks(rows) or _parts(rows) or [root]
    others: dict[str, Row] = {}
    for row in sorted(rows, key=_depth):
        if row not in chosen:
            others.setdefault(row.kind, row)
    trained = any(name == "weight" and tensor.requires_grad for _, name, tensor in tree.tensors().values())
    return Suggestion(tuple(map(_target, chosen)), tuple(map(_target, list(others.values())[:MOST])), trained)


def _blocks(rows: list[Row]) -> list[Row]:
    """The rows of the numbered class that holds most of the parameters; of two that hold the same, the outer one."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.parameters and row.path.rpartition(".")[2].strip("{}").replace("..", "").isdecimal():
            groups[row.kind].append(row)
    repeated = [group for group in groups.values() if sum(len(row.nodes) for row in group) > 1]
    return max(repeated, key=_weight)[:MOST] if repeated else []


def _weight(group: list[Row]) -> tuple[int, int]:
    return sum(len(row.nodes) * (row.parameters or 0) for row in group), -_depth(group[0])


def _parts(rows: list[Row]) -> list[Row]:
    """The modules on the first level that has several of them."""
    for depth in sorted({_depth(row) for row in rows}):
        level = [row for row in rows if _depth(row) == depth]
        if len(level) > 1:
            return level[:MOST]
    return rows[:1]


def _depth(row: Row) -> int:
    return row.path.count(".")


def _target(row: Row) -> Target:
    return Target(row.path, row.kind, len(row.nodes))
