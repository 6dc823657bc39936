"""The taps that take the values of each binding of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from probes.clock import LOSS_SCALE, SeriesKey
from probes.component import Accumulation, Transform
from probes.hooks.backward import ArmedHooks, GradTap
from probes.hooks.capture.account import Account
from probes.hooks.capture.accumulator import Accumulator
from probes.hooks.capture.condition_check import ConditionCheck
from probes.hooks.capture.loss_scale import LossScales, nonlinear
from probes.hooks.capture.recorder import Recorder
from probes.hooks.capture.run_state import RunState
from probes.hooks.capture.tap import Tap, ValueTap
from probes.hooks.edit import Editor, EditTap, GradEditTap
from probes.hooks.loop import LoopTap
from probes.hooks.memory import MemoryMeter, MemoryTap
from probes.hooks.operations import OperationTap
from probes.hooks.optimizer import OptimizerTap
from probes.hooks.tensor import TensorTap
from probes.plan import Binding, Node, Plan, Tree
from probes.plan.checks import memory_counters, named_function
from probes.plan.edit_source import given_name
from probes.runner.attached.given_tensors import GivenTensors
from probes.runner.attached.schedule import Schedule, within
from probes.runner.failures import Failures
from probes.runner.triggers.trigger import TriggeredRecorder, TriggerWatch
from probes.value_path import LOOP, OF_OPTIMIZER, PARAMETER_ROOTS, OperationName, ValuePath

if TYPE_CHECKING:
    from probes.hooks.capture.other_number import OtherNumbers
    from probes.runner.attached.second_tensors import SecondTensors


class Taps:
    """The taps of a plan.

    Args:
        plan: the bindings.
        moment: the clock of the hooks.
        schedule: the gates.
        trees: the module trees of the models, by name.
        failures: what goes wrong, such as a value that could not be captured.

    Attributes:
        taps: one for each binding, in the plan's order.
        grads: those that take gradients of values; those of operations are added when they are called.
        triggers: what waits for a trigger; None without any.
        armed: tensor hooks that the open step armed; None if no gradient is captured or edited.
        scales: loss scales of gradients; None likewise.
        editors: probe -> target -> its editor.
        given: the tensors that the program gives to edits; None without edits.
        compared: what is compared with second tensors; None if nothing is.
        numbers: conditions on numbers of other series or of the loop; None without any.
    """

    def __init__(
        self,
        plan: Plan,
        moment: RunState,
        schedule: Schedule,
        trees: Mapping[str, Tree],
        failures: Failures,
    ) -> None:
        self.plan = plan
        self.moment = moment
        self.schedule = schedule
        self.trees = trees
        self.failures = failures
        gradients = any(binding.root.startswith("grad") for binding in plan.bindings)
        self.armed = ArmedHooks() if gradients else None
        self.scales = LossScales(self._scale_recorder) if gradients else None
        self.editors: dict[str, dict[str, Editor]] = {}
        self.given = GivenTensors(plan.bindings) if any(binding.probe.edit is not None for binding in plan.bindings) else None
        self.compared = _second_tensors(plan)
        waits = any(one.enabled and one.when.trigger is not None for one in plan.loaded.spec.probes.values())
        self.triggers = TriggerWatch(plan, moment, trees, failures) if waits else None
        self.numbers = _other_numbers(plan, self.triggers)
        self._meters: dict[Any, MemoryMeter] = {}
        self.taps: list[Tap] = [self._tap(binding) for binding in plan.bindings]
        self.grads = [tap for tap in self.taps if isinstance(tap, GradTap)]

    def _tap(self, binding: Binding) -> Tap:
        when = binding.probe.when
        kind = _kind(binding)
        tap = kind(
            binding.root,
            binding.keys,
            self.schedule.gate(when),
            within(when),
            partial(self._recorder, binding),
            Account(),
            self.moment,
            partial(self.failures.lost, binding),
        )
        tap.original = binding.probe.sees == "original"
        tap.masks = tuple(mask for one in binding.probe.transforms for mask in masks_of(one))
        if isinstance(tap, OperationTap):
            operation = OperationName.parse(binding.op)
            tap.begin(operation, named_function(operation), partial(self._call_of, binding, tap))
            return tap
        self._arm(tap)
        if isinstance(tap, MemoryTap):
            tap.begin(self._node(binding).module, self._meter(binding))
        if isinstance(tap, TensorTap):
            node = self._node(binding)
            tap.begin(node.module, binding.target.rpartition(".")[2], binding.stage)
        if isinstance(tap, LoopTap):
            tap.begin()
        self._edit(binding, tap)
        return tap

    def _call_of(self, binding: Binding, whole: OperationTap, number: int) -> Tap:
        """The tap of the n-th call of an operation; it counts into the account of the binding."""
        operation = whole.operation

        def make(leaf: str) -> Recorder:
            return self._recorder(binding, operation.leaf(leaf, number))

        def lost(_: Tap, leaf: str, error: Exception, reason: str, at: Any) -> None:
            named = leaf if leaf.startswith(operation.leaf(binding.root, number)) else operation.leaf(leaf, number)
            self.failures.lost(binding, whole, named, error, reason, at)

        tap = _kind_of_value(binding)(binding.root, binding.keys, whole.gate, whole.within, make, whole.account, self.moment, lost)
        tap.original = whole.original
        self._arm(tap)
        if isinstance(tap, GradTap):
            self.grads.append(tap)
        self._edit(binding, tap)
        return tap

    def _arm(self, tap: Tap) -> None:
        """Give a tap of gradients the list of armed hooks."""
        if isinstance(tap, GradTap) and self.armed is not None:
            tap.begin(self.armed)

    def _meter(self, binding: Binding) -> MemoryMeter:
        """The memory meter of the device of a model."""
        device = self.trees[binding.model].device()
        return self._meters.setdefault(device, MemoryMeter(memory_counters(device), device))

    def _edit(self, binding: Binding, tap: Tap) -> None:
        """Give a tap of an edit its editor."""
        if binding.probe.edit is None or self.given is None:
            return
        where = f"probe `{binding.name}` on `{binding.target}`"
        name = given_name(binding.probe.edit)
        source = partial(self.given.tensors.get, name) if name else partial(_same, binding.source)
        place = " ".join((binding.model, binding.target, binding.op, str(ValuePath(binding.root, binding.keys))))
        editor = Editor(binding.probe.edit, source, binding.probe.dims, where, place, self.given.tensors)
        tap.masks = (*tap.masks, *binding.probe.edit.input_paths())
        self.editors.setdefault(binding.name, {})[binding.target] = editor
        if isinstance(tap, EditTap):
            tap.begin(editor)
        elif isinstance(tap, GradEditTap):
            tap.edit_with(editor)
        elif isinstance(tap, TensorTap):
            tap.editor = editor

    def _recorder(self, binding: Binding, leaf: str) -> Recorder:
        tap = self.taps[binding.index]
        attrs = {"hook": binding.hook, "module_class": binding.kind, "value": binding.value, "stage": binding.stage}
        dims = binding.probe.dims if binding.probe.edit is None else None
        known: dict[str, object] = {name: value for name, value in attrs.items() if value}
        transforms, where = binding.probe.transforms, binding.probe.where
        compared = self.compared if binding.second is not None else None
        if compared is not None:
            transforms, dims = compared.later(binding), None
            known["against"] = str(binding.second)
        if self.triggers is not None and binding.probe.when.trigger is not None:
            recorder: Recorder = TriggeredRecorder(self.triggers, binding, leaf, tap.account, transforms, dims, known)
        else:
            kind = Accumulator if any(isinstance(transform, Accumulation) for transform in transforms) else Recorder
            recorder = kind(binding.key(leaf), self.moment, tap.account, transforms, dims, known)
        if binding.probe.gather is not None:
            recorder.parts.gather = True
        if where is not None and not where.is_elsewhere:
            recorder.keep_where(ConditionCheck(where, transforms, dims))
        if self.numbers is not None:
            if binding.name in self.numbers.filters:
                self.numbers.filters[binding.name].filter(recorder)
            self.numbers.listen(recorder, transforms, dims)
        if compared is not None:
            compared.add(recorder, binding)
        if self.compared is not None:
            self.compared.share(recorder, binding.index)
        return recorder

    def _scale_recorder(self, probe: str) -> Recorder:
        """The recorder of the loss scales of a probe, for all its targets."""
        binding = next(binding for binding in self.plan.bindings if binding.name == probe)
        key = SeriesKey(probe, "", LOSS_SCALE, "train")
        attrs: dict[str, object] = {"nonlinear": " ".join(nonlinear(binding.probe.transforms))}
        if self.triggers is not None and binding.probe.when.trigger is not None:
            recorder: Recorder = TriggeredRecorder(self.triggers, binding, LOSS_SCALE, Account(), (), None, attrs)
            recorder.key = key
        else:
            recorder = Recorder(key, self.moment, Account(), (), None, attrs)
        recorder.owner = self.taps[binding.index]
        return recorder

    def _node(self, binding: Binding) -> Node:
        return self.trees[binding.model].nodes[binding.module]


def _second_tensors(plan: Plan) -> SecondTensors | None:
    """The comparisons of a run; None, without an import, for a spec that compares nothing."""
    if not any(binding.second is not None for binding in plan.bindings):
        return None
    from probes.runner.attached.second_tensors import SecondTensors

    return SecondTensors(plan.bindings)


def _other_numbers(plan: Plan, watch: TriggerWatch | None) -> OtherNumbers | None:
    """The conditions on numbers of other series; None, without an import, for a spec without any."""
    used = {binding.name: binding.probe for binding in plan.bindings}
    where = {name: one.where for name, one in used.items() if one.where is not None and one.where.is_elsewhere}
    triggers = {name: one.when.trigger for name, one in used.items() if one.when.trigger is not None and one.when.trigger.is_elsewhere}
    if not (where or triggers):
        return None
    from probes.hooks.capture.other_number import OtherNumber, OtherNumbers

    found = OtherNumbers()
    found.filters = {name: OtherNumber(condition) for name, condition in where.items()}
    found.triggers = {
        name: OtherNumber(condition, partial(watch.found_elsewhere, name)) for name, condition in triggers.items() if watch is not None
    }
    return found


def masks_of(transform: Transform) -> list[str]:
    """The inputs of the call that a transform needs: a mask, or labels."""
    named = [getattr(transform, key, None) for key in ("mask", "by")]
    return [path for path in named if path and path.startswith("input.")]


def _same(source: Tensor | None) -> Tensor | None:
    """The constant tensor of a file or a run."""
    return source


def _kind(binding: Binding) -> type[Tap]:
    if binding.op:
        return OperationTap
    if binding.hook == "tensor" and binding.root in PARAMETER_ROOTS:
        return OptimizerTap if binding.root in OF_OPTIMIZER else TensorTap
    if binding.root == "memory":
        return MemoryTap
    if binding.root == LOOP:
        return LoopTap
    return _kind_of_value(binding)


def _kind_of_value(binding: Binding) -> type[Tap]:
    """The tap class for a value of a module, or of an operation."""
    if binding.probe.edit is not None:
        return EditTap if binding.root in ("input", "output") else GradEditTap
    return ValueTap if binding.root in ("input", "output") else GradTap
