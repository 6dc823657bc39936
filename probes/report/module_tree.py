"""The modules of a run as a tree, with the captures of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from probes.clock import SeriesKey
from probes.printable import in_html

MANY, OPEN_LEVELS = 200, 2
MOST_LEVELS = 64  # longer paths end in one node, so that no path makes a tree too deep for recursion


@dataclass
class CapturedModule:
    """One module, parameter or buffer.

    Attributes:
        path: its canonical path.
        kind: name of its class; empty for what is not a module.
        captured: captures by probe and value.
        below: its children by name.
    """

    path: str
    kind: str = ""
    captured: Counter[str] = field(default_factory=Counter)
    below: dict[str, CapturedModule] = field(default_factory=dict)

    @cached_property
    def total(self) -> int:
        """The number of captures of the node and all below."""
        return self.captured.total() + sum(node.total for node in self.below.values())

    @property
    def size(self) -> int:
        """The number of nodes of the tree below it, and itself."""
        return 1 + sum(node.size for node in self.below.values())


def tree(manifest: Mapping[str, Any], captures: Mapping[SeriesKey, int]) -> CapturedModule:
    """The tree of all models of a manifest, with every target that has captures."""
    root = CapturedModule("")
    for model in manifest.get("models") or ():
        for module in model.get("modules") or ():
            _at(root, module["path"]).kind = str(module["type"]).rpartition(".")[2]
    for key, count in captures.items():
        word = f"{key.probe} {key.leaf}" + (f" @{key.phase}" if key.phase != "train" else "")
        _at(root, key.target).captured[word] += count
    return root


def _at(root: CapturedModule, path: str) -> CapturedModule:
    """The node of a path, created if missing."""
    node = root
    for name in path.split(".", MOST_LEVELS) if path else ():
        node = node.below.setdefault(name, CapturedModule(f"{node.path}.{name}" if node.path else name))
    return node


def tree_html(root: CapturedModule) -> str:
    """The tree as nested lists; branches without captures are closed, and in a large tree all but the first levels."""
    levels = MOST_LEVELS if root.size <= MANY else OPEN_LEVELS
    return f'<ul class="tree">{_item(root, "model", levels)}</ul>'


def _item(node: CapturedModule, name: str, levels: int) -> str:
    """One node with all below it; `levels` of them are open."""
    kind = f' <span class="class">{in_html(node.kind)}</span>' if node.kind else ""
    chips = "".join(f'<span class="chip">{in_html(word)} <b>{count}</b></span>' for word, count in node.captured.items())
    show = f'<button type="button" data-show="{in_html(node.path)}">show</button>' if node.total and node.path else ""
    line = f'<span class="module">{in_html(name)}</span>{kind} {chips}{show}'
    if not node.below:
        return f"<li>{line}</li>"
    inner = "".join(_item(below, word, levels - 1) for word, below in node.below.items())
    state = " open" if node.total and levels > 0 else ""
    return f"<li><details{state}><summary>{line}</summary><ul>{inner}</ul></details></li>"
