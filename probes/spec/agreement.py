"""What has to go together within a probe, and among the parts of a spec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from probes.component import Accumulation
from probes.errors import nearest
from probes.module_glob import Pattern
from probes.sinks.kernels.run_file import name_fault
from probes.spec.fault import Fault, Faults
from probes.value_path import HOOK_OF, NATURAL, Reference, ValuePath

if TYPE_CHECKING:
    from probes.spec.models import Probe, Spec


def probe_faults(probe: Probe) -> Faults:
    """What does not go together within a probe."""
    for check in (_place, _hook_and_values, _stage, _schedule, _selection, _beside_edit, _accumulations, _trigger):
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
        yield from _part_of_another(path, probe.value_paths, ("values", index))
    references = {index: Reference.parse(text) for index, text in enumerate(probe.tensors) if ":" in text}
    for index, reference in references.items():
        others = [other.value for other in references.values() if other.module == reference.module]
        yield from _part_of_another(reference.value, others, ("tensors", index))
    if probe.hook == "tensor" and probe.modules and not probe.tensors:
        message = "hook `tensor` looks at `tensors`, not `modules`"
        yield Fault("hook-and-place", message, ("hook",), "name a parameter, a buffer, or a value such as fc1:output under `tensors`")
    if probe.hook not in (None, "tensor") and probe.tensors and not probe.modules:
        message = f"hook `{probe.hook}` looks at `modules`, not `tensors`"
        yield Fault("hook-and-place", message, ("hook",), "name modules under `modules`, or write `hook: tensor`")


def _part_of_another(path: ValuePath, paths: Iterable[ValuePath], at: tuple[str | int, ...]) -> Faults:
    whole = next((other for other in paths if other != path and _holds(other, path)), None)
    if whole is not None:
        yield Fault("no-effect", f"value `{path}` is part of `{whole}`, which the probe takes already", at, "leave one of the two out")


def _holds(whole: ValuePath, part: ValuePath) -> bool:
    """Whether every tensor of `part` is one of `whole`."""
    pairs = zip(whole.keys, part.keys, strict=False)  # what is deeper than the whole is within it
    return whole.root == part.root and len(whole.keys) <= len(part.keys) and all(key in ("*", other) for key, other in pairs)


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
    reference = next((text for text in probe.tensors if ":" in text), None)
    if path.root == "data" and reference is not None and reference.rpartition(":")[0]:
        hint = f"write `modules: [{reference.rpartition(':')[0]}]` and `values: [{reference.rpartition(':')[2]}]`"
        yield Fault("data-of-value", f"`data` of `{reference}` is the value itself, which a module has", place, hint)
    if path.root in ("grad", "data", "memory") and path.keys:
        what = "a call has three numbers" if path.root == "memory" else "a parameter is one tensor"
        yield Fault("value-keys", f"`{path.root}` has no keys: {what}", place, f"write `{path.root}`")
    if path.root == "memory" and probe.edit is not None:
        yield Fault("no-effect", "`memory` is measured and cannot be edited", place, "leave it out, or the `edit`")
    if path.root == "memory" and probe.dims is not None:
        yield Fault("no-effect", "`dims` has no effect on `memory`, whose axis has its name", ("dims",), "leave it out", key=True)


def _stage(probe: Probe) -> Faults:
    if probe.stage is None:
        return
    if not probe.tensors or any(":" in text for text in probe.tensors):
        message = "`stage` has no effect on a module's value; it tells gradients of parameters apart"
        yield Fault("no-effect", message, ("stage",), "leave it out", key=True)
    elif not any(path.root == "grad" for path in probe.value_paths):
        yield Fault("no-effect", "`stage` has no effect on `data`; it tells gradients apart", ("stage",), "leave it out", key=True)


def _schedule(probe: Probe) -> Faults:
    if all(path.root.startswith("grad") for path in probe.value_paths) and "train" not in probe.when.phases:
        message = "gradients are due in phase `train` only, and the schedule leaves it out"
        yield Fault("no-effect", message, ("when", "phases"), "write `phases: [train]`", key=True)
    undone = "leave it out, or undo a default with {from: 0}"
    calls, microsteps = probe.when.calls, probe.when.microsteps
    if probe.tensors and not any(":" in text for text in probe.tensors) and calls is not None and not calls.is_all:
        message = "`calls` has no effect on a parameter, which is not called"
        yield Fault("no-effect", message, ("when", "calls"), undone, key=True)
    if probe.stage == "final" and microsteps is not None and not microsteps.is_all:
        message = "`microsteps` has no effect on a final gradient, which is read once, when the optimizer has stepped"
        yield Fault("no-effect", message, ("when", "microsteps"), undone, key=True)


def _selection(probe: Probe) -> Faults:
    if probe.types and not probe.modules:
        yield Fault("no-effect", "`types` has no effect on `tensors`; it is about modules", ("types",), "leave it out", key=True)
    chosen = "modules" if probe.modules else "tensors"
    for key in ("types", "exclude") if probe.modules else ("exclude",):
        if getattr(probe, key) and not any(_is_glob(text) for text in getattr(probe, chosen)):
            message = f"`{key}` has no effect on exact paths; it selects among what a glob matches"
            yield Fault("no-effect", message, (key,), f"leave it out, or write a glob under `{chosen}`", key=True)


def _is_glob(text: str) -> bool:
    return ":" not in text and not Pattern(text).is_exact


def _beside_edit(probe: Probe) -> Faults:
    for key in ("transforms", "sinks", "sees") if probe.edit is not None else ():
        if getattr(probe, key):
            message = f"`{key}` has no effect beside `edit`; a probe observes or rewrites"
            yield Fault("no-effect", message, (key,), "make two probes of it", key=True)


def _accumulations(probe: Probe) -> Faults:
    places = [index for index, transform in enumerate(probe.transforms) if isinstance(transform, Accumulation)]
    for index in places[1:]:
        kind = probe.transforms[index].kind
        message = f"a second accumulation, `{kind}`, has no effect: there is one value an epoch behind the first"
        yield Fault("no-effect", message, ("transforms", index), "make two probes of it", key=True)


def _trigger(probe: Probe) -> Faults:
    if probe.when.trigger is None:
        return
    if probe.edit is not None:
        message = "`trigger` has no effect beside `edit`: it keeps captures, and an edit makes none"
        yield Fault("no-effect", message, ("when", "trigger"), "make two probes of it", key=True)
    merged = next((transform.kind for transform in probe.transforms if isinstance(transform, Accumulation)), None)
    if merged is not None:
        message = f"`trigger` has no effect beside `{merged}`: it keeps single steps, and `{merged}` has one value an epoch"
        yield Fault("no-effect", message, ("when", "trigger"), "make two probes of it", key=True)


def _sinks(spec: Spec) -> Faults:
    records = [name for name in spec.sinks if name not in spec.reading_sinks]
    for name in records[1:]:
        message = f"sinks `{records[0]}` and `{name}` would write the same hdf5 files"
        yield Fault("two-files", message, ("sinks", name), "keep one of them", key=True)
    yield from _sink_files(spec)
    known = [*spec.sinks] or ["captures"]
    for name, probe in spec.probes.items():
        for index, sink in enumerate(probe.sinks):
            if sink not in known:
                message = f"sink `{sink}` is not declared; declared: {', '.join(known)}"
                yield Fault("unknown-sink", message, ("probes", name, "sinks", index), nearest(sink, known) or "declare it under `sinks`")

    used = {sink for probe in spec.probes.values() if probe.edit is None for sink in probe.sinks or known}
    for name in spec.sinks if used else ():
        if name not in used:
            yield Fault("no-effect", f"sink `{name}` gets nothing: every probe names others", ("sinks", name), "leave it out", key=True)


def _sink_files(spec: Spec) -> Faults:
    """Each file that a sink declares has a plain name, and no other sink declares it."""
    owners: dict[str, str] = {}
    for name, file in ((name, file) for name, sink in spec.reading_sinks.items() for file in sink.files()):
        owner = owners.setdefault(file, name)
        if reason := name_fault(file):
            yield Fault("sink-path", f'sink `{name}` cannot write "{file}"', ("sinks", name), reason, key=True)
        elif owner != name:
            message = f'sinks `{owner}` and `{name}` would write the same file "{file}"'
            yield Fault("two-files", message, ("sinks", name), "give one of them another file name, or keep one of them", key=True)


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
    rewrites = any(probe.edit is not None for probe in spec.probes.values())
    for name, probe in spec.probes.items() if not rewrites else ():
        if probe.sees is not None:
            message = "`sees` has no effect in a spec without an `edit`; every value is the original"
            yield Fault("no-effect", message, ("probes", name, "sees"), "leave it out", key=True)
    if not any(probe.enabled for probe in spec.probes.values()):
        yield Fault("all-disabled", "every probe is switched off, so nothing would be captured", ("probes",), "enable one", key=True)


def _limits(spec: Spec) -> Faults:
    if spec.limits.on_limit == "raise" and spec.limits.bytes_per_epoch is None:
        message = "`on_limit` has no effect without `bytes_per_epoch`, the limit it is about"
        yield Fault("no-effect", message, ("limits", "on_limit"), "add `bytes_per_epoch`, or leave it out", key=True)
