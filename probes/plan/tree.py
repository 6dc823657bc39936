"""The module tree of a model under canonical paths: without wrappers, and with all names of shared modules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from probes.module_glob import ModuleGlob

# Attribute name -> base classes of the wrapper that keeps the wrapped module there; empty if the name alone is proof.
WRAPPERS: dict[str, tuple[str, ...]] = {
    "module": ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "AveragedModel"),
    "_orig_mod": (),
    "_fsdp_wrapped_module": (),
    "_checkpoint_wrapped_module": (),
}


@dataclass(frozen=True, eq=False)
class Node:
    """One module of the tree.

    Attributes:
        path: canonical path; `""` is the root.
        raw: the path as `named_modules` gives it, with wrappers.
        module: the module inside its wrappers.
        wrappers: the wrappers around it, outermost first.
    """

    path: str
    raw: str
    module: Module
    wrappers: tuple[Module, ...] = ()

    @property
    def kind(self) -> str:
        """The class name of the module."""
        return type(self.module).__name__

    @property
    def runs(self) -> bool:
        """Whether the module has a `forward`; `ModuleList` and `ModuleDict` have none."""
        if self.scripted:  # whose class has no `forward` to look up
            return True
        return type(self.module).forward is not Module.forward

    @property
    def compiled(self) -> bool:
        """Whether `torch.compile` or `Module.compile` was applied to this very module."""
        outer = [type(wrapper).__name__ for wrapper in self.wrappers]
        return "OptimizedModule" in outer or getattr(self.module, "_compiled_call_impl", None) is not None

    @property
    def fullgraph(self) -> bool:
        """Whether the module is compiled and allows no graph breaks."""
        contexts = [getattr(wrapper, "dynamo_ctx", None) for wrapper in self.wrappers]
        return any(getattr(context, "fullgraph", False) for context in [*contexts, *_settings(self.module)])

    @property
    def scripted(self) -> bool:
        """Whether the module is a ScriptModule, on which Python hooks do not work."""
        return isinstance(self.module, torch.jit.ScriptModule)


class Tree:
    """The modules, parameters and buffers of a model by canonical path.

    Args:
        model: any module; it is read, never called or changed. A parametrized tensor is never read through its
            property, which would run code.

    Attributes:
        nodes: the modules by canonical path, parents before children.
        owners: the first node of each module object, and of each wrapper, by id.
        root: the model inside its wrappers.
    """

    def __init__(self, model: Module) -> None:
        self.model = model
        self.nodes: dict[str, Node] = {}
        self.owners: dict[int, Node] = {}
        self._aliases: dict[int, list[str]] = {}
        self._walk(model, "", "", (), ())
        self._raw = {node.raw: node for node in self.nodes.values()}
        self.root = self.nodes[""]

    def _walk(self, module: Module, path: str, raw: str, wrappers: tuple[Module, ...], above: tuple[int, ...]) -> None:
        inner = wrapped(module)
        if inner is not None:
            name, child = inner
            self._walk(child, path, join(raw, name), (*wrappers, module), above)
            return
        self._add(Node(path, raw, module, wrappers))
        if id(module) in above:
            return
        for name, found in module._modules.items():
            if found is not None:
                self._walk(found, join(path, name), join(raw, name), (), (*above, id(module)))

    def _add(self, node: Node) -> None:
        self.owners.setdefault(id(node.module), node)
        self._aliases.setdefault(id(node.module), []).append(node.path)
        for wrapper in node.wrappers:
            self.owners.setdefault(id(wrapper), node)
        self.nodes[node.path] = node

    def find(self, path: str) -> Node | None:
        """The node of a path, which may also contain wrappers as in `named_modules`."""
        return self.nodes.get(path) or self._raw.get(path) or self.nodes.get(canonical(path))

    def matching(self, glob: ModuleGlob) -> list[Node]:
        """The nodes that a pattern matches by their canonical paths, else by their paths in `named_modules`."""
        nodes = self.nodes.values()
        return [node for node in nodes if glob.matches(node.path)] or [node for node in nodes if glob.matches(node.raw)]

    def aliases(self, node: Node) -> tuple[str, ...]:
        """The other canonical paths of a module."""
        return tuple(path for path in self._aliases[id(node.module)] if path != node.path)

    def owner(self, module: Module) -> Node | None:
        """The first node of a module object, or None if it is not in the tree."""
        return self.owners.get(id(module))

    def first(self, node: Node) -> Node:
        """The node with the first path of a shared module."""
        return self.owners[id(node.module)]

    def around(self, path: str) -> Iterator[Node]:
        """The node of a path and those above it, from the root downwards."""
        levels = path.split(".") if path else []
        paths = (".".join(levels[:count]) for count in range(len(levels) + 1))
        return (self.nodes[name] for name in paths if name in self.nodes)

    def compiled_region(self, path: str) -> Node | None:
        """The outermost compiled module at or above a path; None if no module around it is compiled.

        A compiled *function* that calls the model leaves no trace on it and is not seen.
        """
        return next((node for node in self.around(path) if node.compiled), None)

    def runnable(self) -> Iterator[Node]:
        """The nodes that a wildcard can match: with a `forward`, each module once."""
        return (node for node in self.nodes.values() if node.runs and self.owners[id(node.module)] is node)

    def tensors(self) -> dict[str, tuple[Node, str, Tensor]]:
        """Parameters and buffers by canonical path: node, attribute name, tensor."""
        found: dict[str, tuple[Node, str, Tensor]] = {}
        for path, node in self.nodes.items():
            for name, tensor in [*node.module._parameters.items(), *node.module._buffers.items()]:
                if tensor is not None:
                    found[join(path, name)] = (node, name, tensor)
        return found

    def device(self) -> torch.device:
        """The device of the model's first parameter or buffer; the CPU if it has none."""
        first = next(chain(self.model.parameters(), self.model.buffers()), None)
        return torch.device("cpu") if first is None else first.device


def wrapped(module: Module) -> tuple[str, Module] | None:
    """The attribute and the module inside a wrapper, or None if `module` is not a wrapper."""
    for name, classes in WRAPPERS.items():
        if name not in module._modules:  # `in` instead of `get`, which the table of a ScriptModule does not have
            continue
        child = module._modules[name]
        if child is not None and (not classes or any(base.__name__ in classes for base in type(module).__mro__)):
            return name, child
    return None


def innermost(module: Module) -> Module:
    """A module without its wrappers, such as that of torch.compile, which are not separate instances."""
    while (inside := wrapped(module)) is not None:
        module = inside[1]
    return module


def join(path: str, name: str) -> str:
    """A module path extended by one level."""
    return f"{path}.{name}" if path else name


def canonical(path: str) -> str:
    """A path without the wrapper levels that are recognised by their names alone."""
    return ".".join(level for level in path.split(".") if level not in WRAPPERS or WRAPPERS[level])


def _settings(module: Module) -> list[Any]:
    """The settings of `Module.compile`, which torch keeps only in the closure of the compiled call."""
    call = getattr(module, "_compiled_call_impl", None)
    cells = getattr(call, "__closure__", None) or ()
    return [cell.cell_contents for cell in cells if hasattr(cell.cell_contents, "fullgraph")]
