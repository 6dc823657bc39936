"""The modules of a model that a first spec should capture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from probes.plan.tree import Node, Tree
from probes.plan.tree_outline import OutlineRow, outline
from probes.signature import Signature

MOST = 8  # targets that are listed one by one
Values = Callable[[Node], Mapping[str, Signature]]
"""The tensors that a module's first call took and gave, by leaf path; empty if it did not fire."""


@dataclass(frozen=True)
class SuggestedTarget:
    """A module, or blocks that repeat.

    Attributes:
        pattern: its path, or the glob of the blocks.
        kind: class name.
        count: how many modules the pattern matches.
        value: what one of them returned, if that was seen.
    """

    pattern: str
    kind: str
    count: int
    value: str = ""


@dataclass(frozen=True)
class Suggestion:
    """The suggested modules of a first spec.

    Attributes:
        chosen: the blocks that repeat and hold most of the parameters; if nothing repeats, the parts of the model.
        others: further targets, outer ones first; a class is named once.
        trained: whether a chosen target has a weight that is trained.
    """

    chosen: tuple[SuggestedTarget, ...]
    others: tuple[SuggestedTarget, ...]
    trained: bool


def suggestion(tree: Tree, values: Values | None = None) -> Suggestion:
    """Choose the targets for a first spec on a model.

    Args:
        tree: the model.
        values: what was seen of the modules; only those that fired are then suggested.
    """
    root, *below = outline(tree)
    rows = [row for row in below if row.nodes[0].runs and not row.shared and _fired(row, values)]
    chosen = _blocks(rows) or _parts(rows) or [root]
    others: dict[str, OutlineRow] = {}
    for row in sorted(rows, key=_depth):
        if row not in chosen:
            others.setdefault(row.kind, row)
    trained = any(name == "weight" and tensor.requires_grad for _, name, tensor in tree.tensors().values())
    further = list(others.values())[:MOST]
    return Suggestion(tuple(_target(row, values) for row in chosen), tuple(_target(row, values) for row in further), trained)


def _fired(row: OutlineRow, values: Values | None) -> bool:
    return values is None or any(values(node) for node in row.nodes)


def _blocks(rows: list[OutlineRow]) -> list[OutlineRow]:
    """The rows of the numbered class with most of the parameters; of two that have the same, the outer one."""
    groups: dict[str, list[OutlineRow]] = defaultdict(list)
    for row in rows:
        if row.parameters and row.path.rpartition(".")[2].strip("{}").replace("..", "").isdecimal():
            groups[row.kind].append(row)
    repeated = [group for group in groups.values() if sum(len(row.nodes) for row in group) > 1]
    return max(repeated, key=_weight)[:MOST] if repeated else []


def _weight(group: list[OutlineRow]) -> tuple[int, int]:
    return sum(len(row.nodes) * (row.parameters or 0) for row in group), -_depth(group[0])


def _parts(rows: list[OutlineRow]) -> list[OutlineRow]:
    """The modules on the first level that has several of them."""
    for depth in sorted({_depth(row) for row in rows}):
        level = [row for row in rows if _depth(row) == depth]
        if len(level) > 1:
            return level[:MOST]
    return rows[:1]


def _depth(row: OutlineRow) -> int:
    return row.path.count(".")


def _target(row: OutlineRow, values: Values | None) -> SuggestedTarget:
    seen = next((found for node in row.nodes if (found := values(node))), {}) if values is not None else {}
    returned = [str(signature) for leaf, signature in seen.items() if leaf.partition(".")[0] == "output"]
    return SuggestedTarget(row.path, row.kind, len(row.nodes), " and ".join(returned[:2]) + (" and more" if len(returned) > 2 else ""))
