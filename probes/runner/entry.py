"""Noticing the outermost calls into a model's tree, whether they enter at the root or below it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.nn import Module

from probes.hooks.capture.model_copies import HookOfOurs
from probes.hooks.capture.run_state import RunState
from probes.hooks.capture.tracing import is_traced, is_transformed
from probes.plan.tree import Node, Tree
from probes.tensors import graph_task, in_backward

Call = Callable[..., Any]

is_compiling = torch.compiler.is_compiling


class Edge(HookOfOurs):
    """A hook on the module where calls enter; it is left out of copies of the model."""

    __slots__ = ("act", "node", "tree")

    def __init__(self, act: Callable[[Tree, Node], None], tree: Tree, node: Node) -> None:
        self.act = act
        self.tree = tree
        self.node = node

    def __call__(self, *_args: object) -> None:
        """Tell that the module's call begins or has returned; within a compiled function nobody can."""
        if not is_compiling():
            self.act(self.tree, self.node)


class Entry:
    """Watches where calls enter the trees.

    Until the first call `Module.__call__` itself is watched, since only there are the module and its keyword inputs seen
    before any of its hooks run. When that call enters at the root, two hooks on the root are enough from then on. When
    it enters below (`training_step` of a Lightning module calls `self.net`), the watch stays.

    Args:
        trees: the trees by the name of the model.
        on_enter: called with the tree's root and the model's name when an outermost call begins.
        on_leave: called when it has returned.
        moment: is told whether an outermost call is running.
    """

    def __init__(self, trees: dict[str, Tree], moment: RunState, on_enter: Callable[[Module], None], on_leave: Callable[[], None]) -> None:
        self.trees = trees
        self.moment = moment
        self.on_enter = on_enter
        self.on_leave = on_leave
        self.entered: Node | None = None
        self.tree: Tree | None = None
        self.frame: FrameType | None = None
        self.handles: list[Any] = []
        self.guarded: tuple[Tree, Module] | None = None
        self.strayed = False
        self.original: Call | None = None

    def start(self) -> None:
        """Begin to watch."""
        if self.original is not None:
            return
        original: Call = Module.__call__
        self.original = original
        watch = self

        def __call__(module: Module, /, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it stands in for Module.__call__
            if torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            return watch.through(original, module, args, kwargs)

        self.installed = __call__
        Module.__call__ = __call__  # type: ignore[method-assign]  # restored by `stop`

    def stop(self) -> None:
        """Take everything back."""
        self.unwatch()
        self.unguard()

    def unguard(self) -> None:
        """Take the hooks off the root."""
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def unwatch(self) -> None:
        """Restore `Module.__call__`."""
        if self.original is not None and Module.__call__ is self.installed:
            Module.__call__ = self.original  # type: ignore[method-assign]  # the very function found there
            self.original = None

    def through(self, original: Call, module: Module, args: Any, kwargs: Any) -> Any:
        """One call of any module in the process while we watch."""
        found = None if in_backward() else self.find(module)
        if found is None or self.inside(found[1]) or _is_aside(*found) or self.overlooks():
            return original(module, *args, **kwargs)
        tree, node = found
        self.unwatch()
        if node is tree.root and len(self.trees) == 1 and not node.compiled and not self.strayed:
            self.guard(tree, module)
            return original(module, *args, **kwargs)
        # While the call runs nothing below it concerns us, and a compiler that traces it finds the class as it is.
        self.enter(tree, node)
        try:
            result = original(module, *args, **kwargs)
        except BaseException:
            self.entered = None
            self.moment.inside = False
            raise
        else:
            self.leave(tree, node)
            return result
        finally:
            self.start()

    def overlooks(self) -> bool:
        """Whether a call is none of the program's computation: it is traced, or a functorch transform runs where no step is named."""
        return is_traced() or (is_transformed() and not self.moment.named)

    def find(self, module: Module) -> tuple[Tree, Node] | None:
        """The tree and the node of a module, or of one that torch.compile wraps; None where it is not ours."""
        inner = getattr(module, "_orig_mod", module)  # the program may call a wrapper of the model that we know
        for tree in self.trees.values():
            node = tree.owner(module) or tree.owner(inner)
            if node is not None:
                return tree, node
        return None

    def inside(self, node: Node) -> bool:
        """Whether a call of `node` lies within the outermost call that is open.

        An exception or an interrupt may have ended that call without our hearing of it: then a call of the same module,
        or of one that is not below it, begins anew.
        """
        entered = self.entered
        if entered is None:
            return False
        if self.frame is not None:
            if _alive(self.frame):
                return True
            self.entered = self.frame = None
            self.moment.inside = False
            return False
        return node is not entered and (not entered.path or node.path.startswith(f"{entered.path}."))

    def guard(self, tree: Tree, module: Module) -> None:
        """Put two hooks on the root, or the wrapper that is called in its place: first before, last after the others."""
        self.guarded = (tree, module)
        before = Edge(self.enter, tree, tree.root)
        after = Edge(self.leave, tree, tree.root)
        self.handles = [
            module.register_forward_pre_hook(before, prepend=True),
            module.register_forward_hook(after),
        ]

    def rehang(self) -> None:
        """Move our hooks to their places again after others were registered: first before and last after the call."""
        if self.guarded is not None and self.handles:
            self.unguard()
            self.guard(*self.guarded)

    def enter(self, tree: Tree, node: Node) -> None:
        """An outermost call begins."""
        if graph_task() != -1 or self.overlooks():
            return
        self.entered, self.tree, self.frame = node, tree, None
        self.moment.inside = True
        self.on_enter(tree.root.module)

    def leave(self, _tree: Tree, node: Node) -> None:
        """The outermost call has returned."""
        if self.entered is node and graph_task() == -1:
            self.entered = self.frame = None
            self.moment.inside = False
            self.on_leave()

    def stray(self, target: str) -> bool:
        """A hooked module runs outside any outermost call that we saw: the entry is below the root.

        The call that is running is found on the stack, and `Module.__call__` is watched from now on.
        """
        found, frame = (None, None) if self.overlooks() else self.climb()
        if found is None:
            return False
        self.strayed = True
        self.unguard()
        self.enter(*found)
        self.frame = frame
        self.start()
        return True

    def climb(self) -> tuple[tuple[Tree, Node] | None, FrameType | None]:
        """The outermost module of ours whose call is on the stack, and its frame."""
        found, at = None, None
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            module = frame.f_locals.get("self") if frame.f_code.co_name == "_call_impl" else None
            if isinstance(module, Module):
                here = self.find(module)
                found, at = (here, frame) if here is not None else (found, at)
            frame = frame.f_back
        return found, at


def _is_aside(tree: Tree, node: Node) -> bool:
    """Whether a module below the root has no parameters, such as a loss or a metric: a call of it is no call of the model."""
    return node is not tree.root and next(node.module.parameters(), None) is None


def _alive(frame: FrameType) -> bool:
    """Whether a frame is still on this thread's stack."""
    current: FrameType | None = sys._getframe()
    while current is not None:
        if current is frame:
            return True
        current = current.f_back
    return False


def phase_of(root: Module) -> str:
    """The phase of a call that nobody named: `train` where the model trains and gradients are on."""
    return "train" if root.training and torch.is_grad_enabled() else "eval"
