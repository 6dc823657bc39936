"""The hooks on modules, one for each module and side of its call: registered, and taken off in steps in which no probe of theirs is due."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from probes.hooks.capture import compiled
from probes.hooks.capture.run_state import Gate, RunState
from probes.hooks.capture.tap import Tap
from probes.hooks.forward import ForwardHook
from probes.hooks.masks import MaskedForwardHook
from probes.hooks.operations import OperationsHook, OperationTap
from probes.hooks.pre_forward import PreForwardHook
from probes.plan import Binding, Node, Tree
from probes.runner.attached.schedule import Schedule

Hooks = OrderedDict[int, Callable[..., Any]]
BEFORE = ("input", "grad_input", "grad_input_total")  # value roots for which a pre-forward hook is registered


class ModuleHooks:
    """The hooks on modules that are registered.

    Args:
        trees: the module trees of the models; they are brought up to date by the caller.
        moment: the clock of the hooks.
        schedule: gives the gate of several probes.

    Attributes:
        hooks: in the order in which they were registered; the caller removes them.
    """

    def __init__(self, trees: Mapping[str, Tree], moment: RunState, schedule: Schedule) -> None:
        self.trees = trees
        self.moment = moment
        self.schedule = schedule
        self.hooks: list[ForwardHook | PreForwardHook | OperationsHook] = []

    def register(self, bound: Sequence[tuple[Binding, Tap]]) -> list[Any]:
        """Register one hook for each module and side of its call, and return their handles."""
        groups: dict[tuple[int, bool], list[Tap]] = defaultdict(list)
        places: dict[int, Binding] = {}
        for binding, tap in bound:
            module = self._node(binding).module
            places[id(module)] = binding
            groups[id(module), tap.root in BEFORE].append(tap)
        return [self._hook(places[module_id], before, taps) for (module_id, before), taps in groups.items()]

    def _hook(self, binding: Binding, before: bool, taps: list[Tap]) -> Any:
        module = self._node(binding).module
        gate: Gate = self.schedule.union([tap.gate for tap in taps])
        if before:
            pre = PreForwardHook(binding.module, self.moment, gate, taps, module)
            self.hooks.append(pre)
            return module.register_forward_pre_hook(compiled.registered(pre.__call__), with_kwargs=True)
        if any(tap.masks for tap in taps):
            masked = MaskedForwardHook(binding.module, self.moment, gate, taps, module)
            self.hooks.append(masked)
            return module.register_forward_hook(compiled.registered(masked.with_inputs), with_kwargs=True)
        after = ForwardHook(binding.module, self.moment, gate, taps, module)
        self.hooks.append(after)
        # The bound method is called in less time than the object.
        return module.register_forward_hook(compiled.registered(after.__call__))

    def register_operations(self, chosen: Sequence[tuple[Binding, OperationTap]]) -> list[Any]:
        """Register the hooks of operations, two for each module, and return their handles."""
        groups: dict[int, list[tuple[Binding, OperationTap]]] = defaultdict(list)
        for binding, tap in chosen:
            groups[id(self._node(binding).module)].append((binding, tap))
        handles = []
        for group in groups.values():
            binding = group[0][0]
            module = self._node(binding).module
            gate = self.schedule.union([tap.gate for _, tap in group])
            hook = OperationsHook(binding.module, self.moment, gate, [tap for _, tap in group], module)
            self.hooks.append(hook)
            handles += hook.attach(module)
        return handles

    def register_witnesses(self) -> list[Any]:
        """Register a hook without arguments on each root: its trace in a graph shows that a compiled function called the model."""
        gate = Gate()
        gate.due = True
        hooks = [
            (tree.root, ForwardHook("", self.moment, gate, (), tree.root.module)) for tree in self.trees.values() if not tree.root.scripted
        ]
        self.hooks += [hook for _, hook in hooks]
        return [root.module.register_forward_hook(compiled.registered(hook.__call__)) for root, hook in hooks]

    def by_gate(self, handles: Sequence[Any]) -> list[DueHooks]:
        """The hooks that were registered last, by their gates; a step in which one is not due may take them off their modules.

        Args:
            handles: those of these hooks, as `register` returned them.
        """
        groups: dict[Gate, DueHooks] = {}
        for hook, handle in zip(self.hooks[len(self.hooks) - len(handles) :], handles, strict=True):
            groups.setdefault(hook.gate, DueHooks(hook.gate)).add(handle)
        return list(groups.values())

    def _node(self, binding: Binding) -> Node:
        return self.trees[binding.model].nodes[binding.module]


class DueHooks:
    """The hooks that one gate takes off their modules and puts back.

    A hook that has nothing to do costs as much as a call of a module without hooks, about two microseconds; to take it off and put
    it back costs a fifth of that. Where a module has other hooks too there is nothing to gain, and ours stays.

    Attributes:
        gate: whether they have anything to do.
        on: whether they are on their modules.
    """

    __slots__ = ("_places", "gate", "on")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.on = True
        self._places: list[tuple[Hooks, int, Callable[..., Any]]] = []

    def add(self, handle: Any) -> None:
        """Take over a hook that is on its module, by its handle."""
        hooks = handle.hooks_dict_ref()
        if type(hooks) is OrderedDict and len(hooks) == 1:
            self._places.append((hooks, handle.id, hooks[handle.id]))

    def take_off(self) -> None:
        """Take the hooks off."""
        self.on = False
        for hooks, number, _ in self._places:
            if len(hooks) == 1:
                hooks.pop(number, None)

    def put_back(self) -> None:
        """Put the hooks back, each before those that others have registered meanwhile."""
        self.on = True
        for hooks, number, hook in self._places:
            hooks[number] = hook
            if len(hooks) > 1:
                hooks.move_to_end(number, last=False)
