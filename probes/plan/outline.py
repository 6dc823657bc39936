"""A module tree in few lines: blocks that repeat are folded into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from torch import Tensor
from torch.nn.parameter import is_lazy

from probes.plan.tree import Node, Tree, join

Shape = tuple[object, ...]


@dataclass(frozen=True)
class Row:
    """One module, or modules that are built alike and stand in a row.

    Attributes:
        path: canonical path, with `{0..11}` for a level that is folded; a spec can say it so too.
        kind: class name.
        nodes: the modules that the row stands for.
        parameters: number of parameters of one of them with all below it; None where one is not initialized yet.
        shared: path of the module that this one is another name of, or empty.
    """

    path: str
    kind: str
    nodes: tuple[Node, ...]
    parameters: int | None
    shared: str = ""


class Outline:
    """The rows of a tree.

    Args:
        tree: the tree; it is only read.
        folded: whether blocks that repeat become one row.
    """

    def __init__(self, tree: Tree, *, folded: bool = True) -> None:
        self.tree = tree
        self.folded = folded
        self.members: dict[str, list[str]] = {path: [] for path in tree.nodes}
        for path in tree.nodes:
            if path:
                holder, _, name = path.rpartition(".")
                self.members[holder].append(name)
        self._shapes: dict[str, Shape] = {}

    def rows(self) -> Iterator[Row]:
        """From the root downwards, in the order of the model."""
        yield from self._rows("", [""])

    def _rows(self, label: str, paths: list[str]) -> Iterator[Row]:
        nodes = tuple(self.tree.nodes[path] for path in paths)
        first = nodes[0]
        owner = self.tree.first(first)
        yield Row(label, first.kind, nodes, count_parameters(first), "" if owner is first else owner.path)
        for names in self._groups(paths[0]):
            level = names[0] if len(names) == 1 else f"{{{names[0]}..{names[-1]}}}"
            yield from self._rows(join(label, level), [join(path, name) for path in paths for name in names])

    def _groups(self, path: str) -> Iterator[list[str]]:
        """The members of a module; numbered ones that are built alike and follow each other together."""
        place = iter(range(len(self.members[path])))
        for _, group in groupby(self.members[path], lambda name: self._group(path, name, next(place))):
            yield list(group)

    def _group(self, path: str, name: str, place: int) -> object:
        if not (self.folded and name.isdecimal() and str(int(name)) == name):
            return place
        return int(name) - place, self.shape(join(path, name))

    def shape(self, path: str) -> Shape:
        """What two modules that are built alike have in common: classes, names, and shapes of parameters and buffers."""
        if path not in self._shapes:
            node = self.tree.nodes[path]
            owner = self.tree.first(node)
            tensors = [*node.module._parameters.items(), *node.module._buffers.items()]
            own = tuple((name, _sizes(tensor)) for name, tensor in tensors)
            below = tuple((name, self.shape(join(path, name))) for name in self.members[path])
            self._shapes[path] = (type(node.module), "" if owner is node else owner.path, own, below)
        return self._shapes[path]


def _sizes(tensor: Tensor | None) -> object:
    return None if tensor is None or is_lazy(tensor) else (tensor.dtype, tuple(tensor.shape))


def count_parameters(node: Node) -> int | None:
    """Parameters of a module and all below it, each once; None where one is not initialized yet."""
    parameters = list(node.module.parameters())
    if any(is_lazy(parameter) for parameter in parameters):
        return None
    return sum(parameter.numel() for parameter in parameters)
