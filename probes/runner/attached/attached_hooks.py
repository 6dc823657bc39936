"""A plan made live: taps and hooks on the modules and tensors of a model."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from probes.hooks.capture import compiled
from probes.hooks.capture.account import Account
from probes.hooks.capture.model_copies import has_hook, take_off
from probes.hooks.capture.run_state import Gate, OutermostCall, RunState, StepState
from probes.hooks.capture.tap import Tap
from probes.hooks.loop import LoopTap
from probes.hooks.memory import MemoryTap
from probes.hooks.operations import CallWithOperations, OperationsHook, OperationTap, end_recomputes
from probes.hooks.optimizer import OptimizerTap
from probes.hooks.tensor import TensorTap
from probes.plan import Binding, Plan, Tree
from probes.plan.drift import added, is_outdated, node_of, renew
from probes.runner.attached.module_hooks import BEFORE, DueHooks, ModuleHooks
from probes.runner.attached.optimizer_steps import OptimizerSteps
from probes.runner.attached.schedule import Schedule
from probes.runner.attached.taps import Taps
from probes.runner.failures import Failures

APART = (TensorTap, MemoryTap, LoopTap, OperationTap)  # taps without a hook of a module, or that register hooks themselves


class Live:
    """The taps of a plan, and the hooks that are registered.

    Attributes:
        trees: the module trees of the models as they were at the last epoch's begin or end.
        taps: one for each binding, in the plan's order.
        triggers, armed, scales, given, compared, numbers: the parts that the spec asks for, as in `Taps`; None if it does not.
        editors: probe -> target -> its editor.
        optimized: what optimizers do to parameters, for the taps on it; None without such taps.
        standing: hooks on what the roots are called with, which stay from the first epoch to the last: an epoch of a script
            opens, and the one before ends, within the root's own call, when it is too late to register or to remove them.
            Where something is compiled all hooks on modules stay: a graph notices that a hook was removed, but not a new one.
        hooks: the hooks on modules that are registered.
        due_hooks: those that are on their modules only in steps that are due.
        captures: whether values are captured in the epoch; else the hooks of edits and collectives alone are registered.
        added: probe -> what its globs match since the plan was made, and what is not captured.
        outdated: whether a module or tensor that lacks its value in a step was found to be another one, or without its hook.
        counted: the modules whose calls are counted, by id: those that carry a hook.
    """

    def __init__(self, plan: Plan, moment: RunState, schedule: Schedule, failures: Failures) -> None:
        self.plan = plan
        self.moment = moment
        self.schedule = schedule
        self.trees: dict[str, Tree] = dict(plan.trees)
        made = Taps(plan, moment, schedule, self.trees, failures)
        self.taps, self.grads, self.editors = made.taps, made.grads, made.editors
        self.triggers, self.armed, self.scales = made.triggers, made.armed, made.scales
        self.given, self.compared, self.numbers = made.given, made.compared, made.numbers
        self.tensors = [tap for tap in self.taps if isinstance(tap, TensorTap)]
        self.finals = [tap for tap in self.tensors if tap.root == "grad" and tap.stage == "final"]
        self.data = [tap for tap in self.tensors if tap.root == "data"]
        optimizer_taps = [tap for tap in self.taps if isinstance(tap, OptimizerTap)]
        self.optimized = OptimizerSteps(optimizer_taps) if optimizer_taps else None
        self.by_optimizer = [*self.finals, *optimizer_taps]
        self.loops = [(binding, tap) for binding, tap in self._bound() if isinstance(tap, LoopTap)]
        self.handles: list[Any] = []
        self.passing: list[Any] = []
        self.standing: list[Any] = []
        self.stood: set[int] = set()
        self.late: list[TensorTap] = []
        self.module_hooks = ModuleHooks(self.trees, moment, schedule)
        self.hooks = self.module_hooks.hooks
        self.due_hooks: list[DueHooks] = []
        self.outdated = False
        self.removed: set[int] = set()
        self.captures = True
        self.added: dict[str, dict[str, None]] = {}
        self.inside = {binding.index for binding in plan.bindings if self.trees[binding.model].compiled_region(binding.module) is not None}
        self.compiled = bool(self.inside)
        for index in self.inside:
            self.taps[index].absence = "compiled away"
        for tap in self.by_optimizer:
            tap.end_step()
        self.scheduled = self._by_gate()
        self.counted: frozenset[int] = frozenset()

    def _by_gate(self) -> list[tuple[Gate, list[Tap]]]:
        """The taps of each schedule."""
        found: dict[Gate, list[Tap]] = defaultdict(list)
        for tap in self.taps:
            found[tap.gate].append(tap)
        return list(found.items())

    def reset_counters(self) -> list[Account]:
        """Reset the counters of every binding."""
        self.captures = True
        for tap in self.taps:
            tap.reset_counters(Account())
        return [tap.account for tap in self.taps]

    def stand(self) -> None:
        """Register the hooks that stay from the first epoch to the last."""
        self.compiled = self.compiled or compiled.in_use()
        self._stand(lambda binding: self.compiled or _stands(binding))

    def _stand(self, stands: Callable[[Binding], bool]) -> None:
        chosen = [
            (binding, tap)
            for binding, tap in self._bound()
            if not isinstance(tap, APART) and stands(binding) and node_of(self.trees, binding) is not None
        ]
        self.standing = self.module_hooks.register(chosen)
        roots = [(binding, tap) for binding, tap in self._bound() if isinstance(tap, OperationTap) and not binding.module]
        self.standing += self.module_hooks.register_operations(roots)
        self.stood = {binding.index for binding, _ in (*chosen, *roots)}
        if compiled.is_expected():
            self.standing += self.module_hooks.register_witnesses()
        self._count()
        if self.standing and compiled.in_use():
            compiled.forget()

    def register(self, epoch: int) -> None:
        """Register the hooks of every binding whose schedule can be due in this epoch, and remove all others."""
        self._end_hooks()
        drifted = self.verify()
        self._register(epoch, drifted)

    def stop_capturing(self, epoch: int, reason: str) -> None:
        """Take all hooks off that only capture; edits and collectives, for which other ranks wait, are part of the training and continue.

        Args:
            epoch: the open epoch.
            reason: the reason of the values of the epoch that come later, from the closed list.
        """
        for tap in self.taps:
            tap.account.stopped_for = reason
        self.captures = False
        self.rest()
        self._register(epoch, set())

    def follow_model(self, epoch: int | None) -> None:
        """Bring the trees up to date, and put the hooks of the open epoch on what was replaced.

        Args:
            epoch: the open epoch, if there is one.
        """
        self.outdated = False
        drifted = self.verify(again=True) | self.removed
        self.removed.clear()
        if epoch is not None and (drifted or any(tap.is_replaced for tap in self.tensors)):
            self._end_hooks()
            self._register(epoch, drifted)

    def _register(self, epoch: int, drifted: set[int]) -> None:
        if (compiled.in_use() and not self.compiled) or drifted & self.stood:
            self.compiled = self.compiled or compiled.in_use()
            self._unhook()
            self._stand(lambda binding: self.compiled or _stands(binding))
        chosen = []
        bound = [(binding, tap) for binding, tap in self._bound() if self.captures or _continues(binding)]
        for binding, tap in sorted(bound, key=lambda pair: _turn(*pair)):
            if node_of(self.trees, binding) is None or not binding.probe.when.covers(epoch, None, self.moment.rank):
                continue
            if isinstance(tap, TensorTap):
                self.handles += tap.attach()
                self.late += [tap] if tap.lazy else []
            elif isinstance(tap, MemoryTap):
                self.handles += tap.attach()
            elif binding.index not in self.stood and not isinstance(tap, APART):
                chosen.append((binding, tap))
        self.passing = self.module_hooks.register(chosen)
        self.due_hooks = [] if self.compiled or compiled.is_expected() else self.module_hooks.by_gate(self.passing)
        wanted = [(one, tap) for one, tap in bound if one.when_covers(epoch, self.moment.rank) and one.index not in self.stood]
        self.handles += self.module_hooks.register_operations(
            [(one, tap) for one, tap in wanted if isinstance(tap, OperationTap) and node_of(self.trees, one)]
        )
        self._count()

    def follow(self) -> None:
        """Put the hooks that are due in the open step on their modules, and take the others off."""
        for group in self.due_hooks:
            if group.on is not group.gate.due:
                group.put_back() if group.gate.due else group.take_off()

    def stay(self) -> None:
        """Leave all hooks on their modules: code that is compiled while a hook is off never calls it."""
        off = [group for group in self.due_hooks if not group.on]
        self.due_hooks.clear()
        for group in off:
            group.put_back()
        if off and compiled.in_use():
            self.compiled = True
            compiled.forget()

    def bind_late(self) -> None:
        """Register the hooks of lazy parameters that got their shape in the last call."""
        late, self.late = self.late, []
        for tap in late:
            self.handles += tap.attach()

    def verify(self, *, again: bool = False) -> set[int]:
        """Bring the trees up to date with the model; return the indices of bindings whose module was replaced.

        Args:
            again: read the models also where the modules of all bindings are the same.
        """
        trees, drifted = renew(self.plan, self.trees, again=again)
        if trees is not self.trees:
            for name, paths in added(self.plan, self.trees, trees).items():
                self.added.setdefault(name, {}).update(dict.fromkeys(paths))
        self.trees.update(trees)
        for index, text in drifted.items():
            tap = self.taps[index]
            tap.account.drift = text
            node = node_of(self.trees, self.plan.bindings[index])
            if tap.absence in ("not reached", "replaced"):
                tap.absence = "not reached" if node is not None else "replaced"
            if isinstance(tap, TensorTap) and node is not None:
                tap.holder = weakref.ref(node.module)
            if isinstance(tap, MemoryTap) and node is not None:
                tap.module = node.module
        return set(drifted)

    def _bound(self) -> list[tuple[Binding, Tap]]:
        return list(zip(self.plan.bindings, self.taps, strict=True))

    @property
    def call_kind(self) -> type[OutermostCall]:
        """The kind of an outermost call; if operations are probed it also ends the mode that sees them."""
        return CallWithOperations if any(isinstance(tap, OperationTap) for tap in self.taps) else OutermostCall

    @property
    def waiting(self) -> bool:
        """Whether compiled graphs copied values that were not stored yet."""
        return compiled.in_use() and any(hook.traced for hook in self.hooks)

    def pick_up(self, at: OutermostCall) -> None:
        """Capture the values that compiled graphs copied during the last outermost call."""
        for hook in self.hooks:
            if hook.traced and not isinstance(hook, OperationsHook):
                hook.pick_up(at)

    def _count(self) -> None:
        memory = (id(tap.module) for tap in self.taps if isinstance(tap, MemoryTap))
        self.counted = frozenset((*(hook.module for hook in self.hooks), *memory))

    def rest(self) -> None:
        """Take the hooks of an epoch off the model."""
        if self.armed is not None:
            self.armed.settle()
        self._end_hooks()

    def _end_hooks(self) -> None:
        """Take the hooks of an epoch off the modules and parameters; those of gradients that are still to come stay."""
        self.arrive()
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.due_hooks.clear()
        if not (self.compiled or compiled.in_use()):
            self._take_off(self.passing)

    def _take_off(self, handles: list[Any]) -> None:
        for handle in handles:
            handle.remove()
        handles.clear()
        if not self.standing:
            self.hooks.clear()

    def _unhook(self) -> None:
        """Take all hooks off the modules."""
        for handles in (self.passing, self.standing):
            self._take_off(handles)
        self.hooks.clear()
        self.stood.clear()

    def remove(self) -> None:
        """Take every hook off the model."""
        self.rest()
        if self.optimized is not None:
            self.optimized.clear()
        if self.call_kind is CallWithOperations:
            end_recomputes()
        self._unhook()
        for tree in self.trees.values():
            for module in tree.model.modules():
                take_off(module, self.moment)

    def end_step(self, step: StepState, *, whole: bool) -> list[tuple[Binding, str]]:
        """Settle the tensor hooks of a step, and count them if it was due.

        Args:
            step: the step.
            whole: whether it must have all its values: it was not dropped, and no call of another step ran at the same time, so that it is
                clear whose a hook's firing was.

        Returns:
            The bindings that lack their value in it, each with the reason.
        """
        if self.armed is not None and (self.armed.views or self.armed.handles):
            self.armed.settle()
        if self.moment.pinned is not None:
            self.arrive()
        due = step.due
        if not due:
            return []
        for grad in self.grads:
            if grad.first or grad.passes:
                grad.end_step()
        lacking = []
        for gate, taps in self.scheduled:
            if gate in due:
                for tap in taps:
                    account = tap.account
                    if account.gave is step:
                        account.step_given()
                        continue
                    owed = step.differentiated or not tap.root.startswith("grad")
                    reason = account.step_over(step, self._absence(tap), sure=whole, owed=owed)
                    if reason:
                        lacking.append((tap, reason))
        for stepped in self.by_optimizer:
            stepped.end_step()
        if self.scales is not None:
            self.scales.end_step()
        return [(self.plan.bindings[self.taps.index(tap)], reason) for tap, reason in lacking]

    def _absence(self, tap: Tap) -> str:
        """The reason why a step lacks a value; the model is read again if that may bring the next one."""
        if isinstance(tap, TensorTap):
            self.outdated |= tap.known is not None and tap.is_replaced
            return tap.why_absent()
        index = self.taps.index(tap)
        binding = self.plan.bindings[index]
        if not tap.account.skipped[tap.absence] and is_outdated(self.trees, binding):
            self.outdated = True
            return "replaced"
        node = node_of(self.trees, binding)
        table = "_forward_pre_hooks" if binding.root in BEFORE else "_forward_hooks"
        if not isinstance(tap, APART) and node is not None and self.captures and not has_hook(node.module, table, self.moment):
            self.outdated = True
            self.removed.add(index)
            return "removed"
        return tap.why_absent()

    def arrive(self) -> None:
        """Store the captures that are still being copied from an accelerator."""
        if self.moment.pinned is not None:
            self.moment.pinned.drain()

    def settle(self) -> None:
        """At the end of an epoch: a tensor hook whose graph was freed was not used by the loss."""
        for tap in self.grads:
            tap.account.settle()
        for one in self.tensors:
            if one.tensor is None:
                one.notice(None)


def _turn(binding: Binding, tap: Tap) -> int:
    """The order of hooks on one parameter: each sees the gradient after the ones before it."""
    return 0 if tap.original else 1 if binding.probe.edit is not None else 2


def _stands(binding: Binding) -> bool:
    return binding.root in BEFORE and not binding.module


def _continues(binding: Binding) -> bool:
    """Whether a hook stays when nothing more is captured."""
    return binding.probe.edit is not None or binding.probe.gather is not None
