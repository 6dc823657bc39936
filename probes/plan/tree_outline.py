"""A module tree in few lines, with repeated blocks folded into one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor
from torch.nn.parameter import is_lazy

from probes.plan.fold import Fold, fold
from probes.plan.tree import Node, Tree


@dataclass(frozen=True)
class OutlineRow:
    """One module, or repeated modules with consecutive numbers.

    Attributes:
        path: canonical path, with `{0..11}` for a level that is folded; a glob of a spec can be written so too.
        kind: class name.
        nodes: the modules of the row.
        parameters: number of parameters of one of them with all below it; None if one is not initialized yet.
        shared: path of the module that this one is another name of, or empty.
    """

    path: str
    kind: str
    nodes: tuple[Node, ...]
    parameters: int | None
    shared: str = ""


def outline(tree: Tree, *, folded: bool = True) -> list[OutlineRow]:
    """The rows of a tree, from the root downwards, in the order of the model.

    Args:
        tree: the tree; it is only read.
        folded: whether repeated blocks become one row.
    """
    nodes = [*tree.nodes.values()]
    rows = [*zip(tree.nodes, _structures(tree), strict=True)]
    folds = fold(rows) if folded else [Fold(path, (index,)) for index, (path, _) in enumerate(rows)]
    return [_row(tree, one.label, tuple(nodes[index] for index in one.members)) for one in folds]


def _row(tree: Tree, label: str, nodes: tuple[Node, ...]) -> OutlineRow:
    first = nodes[0]
    owner = tree.first(first)
    return OutlineRow(label, first.kind, nodes, count_parameters(first), "" if owner is first else owner.path)


def _structures(tree: Tree) -> list[Hashable]:
    """For each module a number for its structure and its context: equal for modules that a fold may join."""
    numbers: dict[Hashable, int] = {}
    built: dict[str, int] = {}
    for path in reversed(tree.nodes):  # children first
        built[path] = numbers.setdefault((_own_structure(tree, path), *_children(tree, path, built)), len(numbers))
    found: dict[str, int] = {}
    for path in tree.nodes:
        above = path.rpartition(".")[0] if path else None
        part_of = -1 if above is None else found[above]
        found[path] = numbers.setdefault(("part", part_of, built[path]), len(numbers))
    return [*found.values()]


def _children(tree: Tree, path: str, built: dict[str, int]) -> list[tuple[str, int]]:
    names = tree.nodes[path].module._modules
    below = [(name, f"{path}.{name}" if path else name) for name in names]
    return [(name, built[child]) for name, child in below if child in built]


def _own_structure(tree: Tree, path: str) -> Hashable:
    """The class of a module, the shapes of its own tensors, and the module of which it is another name."""
    node = tree.nodes[path]
    owner = tree.first(node)
    tensors = [*node.module._parameters.items(), *node.module._buffers.items()]
    return type(node.module), "" if owner is node else owner.path, tuple((name, _sizes(tensor)) for name, tensor in tensors)


def _sizes(tensor: Tensor | None) -> Hashable:
    return None if tensor is None or is_lazy(tensor) else (tensor.dtype, tuple(tensor.shape))


def count_parameters(node: Node) -> int | None:
    """Parameters of a module and all below it, each once; None if one is not initialized yet."""
    parameters = list(node.module.parameters())
    if any(is_lazy(parameter) for parameter in parameters):
        return None
    return sum(parameter.numel() for parameter in parameters)
