"""The module tree of a model under canonical paths: wrappers stripped, shared modules known by all their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import Module

# Attribute name -> base classes of the wrapper that keeps the wrapped module there; empty where the name alone is proof.
WRAPPERS: dict[str, tuple[str, ...]] = {
    "module": ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "AveragedModel"),
    "_orig_mod": (),
    "_fsdp_wrapped_module": (),
    "_checkpoint_wrapped_module": (),
}


@dataclass
class Node:
    """One module of the tree.

    Attributes:
        path: canonical path; `""` is the root.
        raw: the path as `named_modules` says it, wrappers included.
        module: the module that does the work, inside its wrappers.
        aliases: further canonical paths of the same module.
        wrappers: the wrappers around it, outermost first.
    """

    path: str
    raw: str
    module: Module
    aliases: list[str] = field(default_factory=list)
    wrappers: list[Module] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The class name of the module."""
        return type(self.module).__name__

    @property
    def runs(self) -> bool:
        """Whether the class has a `forward` of its own; `ModuleList` and `ModuleDict` have none."""
        if self.scripted:  # its class answers no question about `forward`
            return True
        return type(self.module).forward is not Module.forward

    @property
    def compiled(self) -> bool:
        """Whether `torch.compile` or `Module.compile` was applied to this very module."""
        outer = [type(wrapper).__name__ for wrapper in self.wrappers]
        return "OptimizedModule" in outer or getattr(self.module, "_compiled_call_impl", None) is not None

    @property
    def scripted(self) -> bool:
        """Whether the module is a ScriptModule, on which Python hooks do not work."""
        return isinstance(self.module, torch.jit.ScriptModule)


class Tree:
    """The modules, parameters and buffers of a model by canonical path.

    Args:
        model: any module; it is read, never called or changed. A parametrized tensor is never read through its
            property, which would run code.
    """

    def __init__(self, model: Module) -> None:
        self.model = model
        self.nodes: dict[str, Node] = {}
        self._owners: dict[int, Node] = {}
        self._walk(model, "", "", [], ())
        self.root = self.nodes[""]

    def _walk(self, module: Module, path: str, raw: str, wrappers: list[Module], above: tuple[int, ...]) -> None:
        inner = wrapped(module)
        if inner is not None:
            name, child = inner
            self._walk(child, path, join(raw, name), [*wrappers, module], above)
            return
        self._add(Node(path, raw, module, wrappers=wrappers))
        if id(module) in above:
            return
        for name, found in module._modules.items():
            if found is not None:
                self._walk(found, join(path, name), join(raw, name), [], (*above, id(module)))

    def _add(self, node: Node) -> None:
        first = self._owners.setdefault(id(node.module), node)
        if first is not node:
            first.aliases.append(node.path)
            node.aliases.append(first.path)
        for wrapper in node.wrappers:
            self._owners.setdefault(id(wrapper), node)
        self.nodes[node.path] = node

    def owner(self, module: Module) -> Node | None:
        """The first node of a module object, or None where it is not in the tree."""
        return self._owners.get(id(module))

    def first(self, node: Node) -> Node:
        """The node under whose path a shared module comes first."""
        return self._owners[id(node.module)]

    def runnable(self) -> Iterator[Node]:
        """The nodes that a wildcard can match: with a `forward` of their own, each module once."""
        return (node for node in self.nodes.values() if node.runs and self._owners[id(node.module)] is node)

    def tensors(self) -> dict[str, tuple[Node, str, Tensor]]:
        """Parameters and buffers by canonical path: node, attribute name, tensor."""
        found: dict[str, tuple[Node, str, Tensor]] = {}
        for path, node in self.nodes.items():
            for name, tensor in [*node.module._parameters.items(), *node.module._buffers.items()]:
                if tensor is not None:
                    found[join(path, name)] = (node, name, tensor)
        return found


def wrapped(module: Module) -> tuple[str, Module] | None:
    """The attribute and the module that a wrapper keeps, or None where `module` is no wrapper."""
    for name, classes in WRAPPERS.items():
        if name not in module._modules:  # asked like this, since the table of a ScriptModule has no `get`
            continue
        child = module._modules[name]
        if child is not None and (not classes or any(base.__name__ in classes for base in type(module).__mro__)):
            return name, child
    return None


def join(path: str, name: str) -> str:
    """A module path one level down."""
    return f"{path}.{name}" if path else name


def canonical(path: str) -> str:
    """A raw path without the wrapper levels whose names alone give them away."""
    return ".".join(level for level in path.split(".") if level not in WRAPPERS or WRAPPERS[level])
