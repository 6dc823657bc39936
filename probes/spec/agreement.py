"""What has to go together within a probe, and among the parts of a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probes.errors import nearest
from probes.spec.fault import Fault, Faults
from probes.value import HOOK_OF, NATURAL, ValuePath

if TYPE_CHECKING:
    from probes.spec.models import Probe, Spec


def probe_faults(probe: Probe) -> Faults:
    """What does not go together within a probe."""
    for check in (_place, _hook_and_values, _stage, _effects):
        yield from check(probe)


def spec_faults(spec: Spec) -> Faults:
    """What does not go together among the parts of a spec."""
    for check in (_sinks, _models, _edits, _limits):
        yield from check(spec)


def _place(probe: Probe) -> Faults:
    if probe.modules and probe.tensors:
        yield Fault("two-places", "a probe has `modules` or `tensors`, not both", ("tensors",), "make two probes of it", key=True)
    if not probe.modules and not probe.tensors:
        yield Fault(
            "no-place", "the probe names no `modules` and no `tensors`, so it looks at nothing", (), "add `modules: [...]`", key=True
        )


def _hook_and_values(probe: Probe) -> Faults:
    if probe.hook is None and not probe.values and not probe.tensors:
        message = "the probe has neither `hook` nor `values`; one of them says what to look at"
        yield Fault("no-hook", message, (), f"add `hook:`, one of {', '.join(NATURAL)}", key=True)
    for index, path in enumerate(probe.value_paths if probe.values else ()):
        yield from _value_faults(probe, index, path)
    if probe.hook == "tensor" and probe.modules and not probe.tensors:
        message = "hook `tensor` looks at `tensors`, not `modules`"
        yield Fault("hook-and-place", message, ("hook",), "name a parameter, a buffer, or a value such as fc1:output under `tensors`")
    if probe.hook not in (None, "tensor") and probe.tensors and not probe.modules:
        message = f"hook `{probe.hook}` looks at `modules`, not `tensors`"
        yield Fault("hook-and-place", message, ("hook",), "name modules under `modules`, or write `hook: tensor`")


def _value_faults(probe: Probe, index: int, path: ValuePath) -> Faults:
    needs, place = HOOK_OF[path.root], ("values", index)
    if probe.hook is not None and probe.hook != needs:
        message = f"value `{path}` is seen by hook `{needs}`, but the probe says `{probe.hook}`"
        yield Fault("hook-and-value", message, place, "leave `hook` out, or make two probes of it")
    elif needs != "tensor" and probe.tensors:
        message = f"value `{path}` belongs to a module; `tensors` have `grad` or `data`"
        yield Fault("value-and-place", message, place, "name the module under `modules`, or leave `values` out")
    elif needs == "tensor" and not probe.tensors:
        message = f"value `{path}` belongs to a parameter or a buffer"
        yield Fault("value-and-place", message, place, "name it under `tensors` instead of `modules`")
    if path.root in ("grad", "data") and path.keys:
        yield Fault("value-keys", f"`{path.root}` has no keys: a parameter is one tensor", place, f"write `{path.root}`")


def _stage(probe: Probe) -> Faults:
    if probe.stage is None:
        return
    if not probe.tensors or any(":" in text for text in probe.tensors):
        message = "`stage` has no effect on a module's value; it tells gradients of parameters apart"
        yield Fault("no-effect", message, ("stage",), "leave it out", key=True)
    elif not any(path.root == "grad" for path in probe.value_paths):
        yield Fault("no-effect", "`stage` has no effect on `data`; it tells gradients apart", ("stage",), "leave it out", key=True)


def _effects(probe: Probe) -> Faults:
    if all(path.root.startswith("grad") for path in probe.value_paths) and "train" not in probe.when.phases:
        message = "gradients are due in phase `train` only, and the schedule leaves it out"
        yield Fault("no-effect", message, ("when", "phases"), "write `phases: [train]`", key=True)
    if probe.types and not probe.modules:
        yield Fault("no-effect", "`types` has no effect on `tensors`; it is about modules", ("types",), "leave it out", key=True)
    for key, value in (("transforms", probe.transforms), ("sinks", probe.sinks), ("sees", probe.sees)) if probe.edit is not None else ():
        if value:
            yield Fault(
                "no-effect", f"`{key}` has no effect beside `edit`; a probe observes or rewrites", (key,), "make two probes of it", key=True
            )
    if probe.tensors and not any(":" in text for text in probe.tensors) and probe.when.calls is not None:
        message = "`calls` has no effect on a parameter, which is not called"
        yield Fault("no-effect", message, ("when", "calls"), "leave it out", key=True)


def _sinks(spec: Spec) -> Faults:
    files = [name for name, sink in spec.sinks.items() if sink.kind == "hdf5"]
    for name in files[1:]:
        yield Fault(
            "two-files", f"sinks `{files[0]}` and `{name}` would write the same hdf5 files", ("sinks", name), "keep one of them", key=True
        )
    known = [*spec.sinks] or ["captures"]
    for name, probe in spec.probes.items():
        for index, sink in enumerate(probe.sinks):
            if sink not in known:
                message = f"sink `{sink}` is not declared; declared: {', '.join(known)}"
                yield Fault("unknown-sink", message, ("probes", name, "sinks", index), nearest(sink, known) or "declare it under `sinks`")


def _models(spec: Spec) -> Faults:
    known = spec.models or {}
    allowed = f"declared: {', '.join(known)}" if known else "the spec declares no `models`"
    hint = "" if known else "leave `model` out, or declare `models: {name: Class}`"
    named = [(("probes", name, "model"), probe.model) for name, probe in spec.probes.items()] + [(("clock", "model"), spec.clock.model)]
    for at, model in named:
        if model is not None and model not in known:
            yield Fault("unknown-model", f"model `{model}` is not declared; {allowed}", at, hint or nearest(model, known))
    for name, probe in spec.probes.items() if known else ():
        if probe.model is None:
            message = f"the spec has several models; probe `{name}` must say which"
            yield Fault("no-model", message, ("probes", name), f"add `model: {next(iter(known))}`", key=True)


def _edits(spec: Spec) -> Faults:
    for name, probe in spec.probes.items():
        if probe.edit is not None and not spec.allow_edits:
            message = f"probe `{name}` rewrites what the model computes, which has to be permitted"
            yield Fault("edits-not-allowed", message, ("probes", name, "edit"), "add `allow_edits: true` at the top level", key=True)
    if not any(probe.enabled for probe in spec.probes.values()):
        yield Fault("all-disabled", "every probe is switched off, so nothing would be captured", ("probes",), "enable one", key=True)


def _limits(spec: Spec) -> Faults:
    if spec.limits.on_limit == "raise" and spec.limits.bytes_per_epoch is None:
        message = "`on_limit` has no effect without `bytes_per_epoch`, the limit it is about"
        yield Fault("no-effect", message, ("limits", "on_limit"), "add `bytes_per_epoch`, or leave it out", key=True)
