"""What must agree between keys: within a range, a schedule or a probe, and between the parts of a spec.

Each rule is a function from a part to the faults in it. A rule reads only what it needs, since it also runs on specs of which some places
cannot be read (`probes.spec.partial`), and stops at such a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from probes.component import Accumulation, Sink
from probes.errors import nearest
from probes.module_glob import ModuleGlob
from probes.record_options import RecordOptions
from probes.sinks.kernels.run_file import name_fault as file_name_fault
from probes.spec.models import Defaults, ModelSelector, Probe, Spec
from probes.spec.partial import Unreadable, readable, readable_items
from probes.spec.texts import name_fault
from probes.spec.when import RANGES, Range, When
from probes.value_path import HOOK_OF, NATURAL, Reference, ValuePath


@dataclass(frozen=True)
class Fault:
    """Something in a spec that does not agree with something else in it.

    Attributes:
        code: kebab-case name of the kind of problem.
        message: what was found, and what is allowed.
        at: the place, below the part that was checked.
        hint: what to do; may be empty.
        key: whether the caret points at the key rather than at its value.
    """

    code: str
    message: str
    at: tuple[str | int, ...] = ()
    hint: str = ""
    key: bool = False


Faults = Iterator[Fault]


def faults_of(spec: Spec) -> Faults:
    """Every fault between the keys of a spec, as far as the spec can be read."""
    yield from _checked(SPEC_RULES, (), spec)
    yield from _checked((_of_defaults, _of_probes), (), spec)


def _of_probes(spec: Spec) -> Faults:
    for name, probe in readable_items(spec.probes):
        at = ("probes", name)
        yield from _checked(PROBE_RULES, at, probe)
        yield from _checked(PROBE_IN_SPEC_RULES, at, spec, probe)
        yield from _checked((_of_schedule,), at, probe)


def _of_defaults(spec: Spec) -> Faults:
    if spec.defaults is not None:
        yield from _checked(DEFAULTS_RULES, ("defaults",), spec.defaults)
        yield from _checked((_of_schedule,), ("defaults",), spec.defaults)


def _of_schedule(part: Probe | Defaults) -> Faults:
    if part.when is not None:
        yield from _checked(WHEN_RULES, ("when",), part.when)
        for name in RANGES:
            yield from _checked((_of_range,), ("when", name), part.when, name)


def _of_range(when: When, name: str) -> Faults:
    chosen: Range | None = getattr(when, name)
    if chosen is not None:
        yield from _checked(RANGE_RULES, (), chosen)


def _checked(rules: Iterable[Callable[..., Faults]], at: tuple[str, ...], *parts: Any) -> Faults:
    """The faults that rules find, each at its place; a rule that meets an unreadable place says no more."""
    for rule in rules:
        try:
            for fault in rule(*parts):
                yield replace(fault, at=(*at, *fault.at))
        except Unreadable:
            continue


# Ranges and schedules


def _at_and_others(part: Range) -> Faults:
    if part.at is not None and part.given:
        other = part.given[0]
        yield Fault("range", f"`at` cannot be combined with `{other}`; it already lists every number", (other,), f"remove `{other}`")


def _empty_range(part: Range) -> Faults:
    if part.at is None and not part.given:
        yield Fault("range", "the range is empty, so it selects no number", (), "to select all numbers, remove the key")
    if part.at is not None and not part.at:
        hint = "list numbers, or disable the probe: `enabled: false`"
        yield Fault("range", "`at` is empty, so it selects no number", ("at",), hint)


def _until_before_from(part: Range) -> Faults:
    first = part.from_ or 0
    if part.until is not None and part.until <= first:
        message = f"`until` (`{part.until}`) must be greater than `from` (`{first}`); `until` itself is not selected"
        yield Fault("range", message, ("until",), f"write {first + 1} or more")


def _first_and_every_one(part: Range) -> Faults:
    if part.every == 1 and part.first is not None:
        yield Fault("range", "`first` has no effect with `every: 1`, which selects every number", ("first",), "remove one of the two")


def _phases(when: When) -> Faults:
    if not when.phases:
        yield Fault("phases", "`phases` is empty, so the probe never captures", ("phases",), "write [train], or remove the key")
    for index, phase in readable(when.phases):
        if phase in ("all", ""):
            yield Fault(
                "phases", f"`{phase}` is not the name of a phase; list the phases by name", ("phases", index), "write [train, eval]"
            )


def _repeated(key: str) -> Callable[[Any], Faults]:
    """The rule that no member of a list is repeated."""

    def rule(part: Any) -> Faults:
        members = getattr(part, key)
        if not members or len(members) < 2:
            return
        seen: Counter[object] = Counter()
        for index, member in readable(members):
            seen[member] += 1
            if seen[member] > 1:
                yield Fault("no-effect", f"`{member}` is listed twice; the second has no effect", (key, index), "remove one of them")

    return rule


# Within a probe


def _place(probe: Probe) -> Faults:
    if probe.modules and probe.tensors:
        message = "a probe cannot have both `modules` and `tensors`"
        yield Fault("two-places", message, ("tensors",), "write two probes", key=True)
    if not probe.modules and not probe.tensors:
        yield Fault("no-place", "the probe has neither `modules` nor `tensors`", (), "add `modules: [...]`", key=True)


def _hook_missing(probe: Probe) -> Faults:
    if probe.hook is None and not probe.values and not probe.tensors:
        hint = f"add `hook:`, one of {', '.join(NATURAL)}"
        yield Fault("no-hook", "the probe has neither `hook` nor `values`", (), hint, key=True)


def _hook_and_place(probe: Probe) -> Faults:
    if probe.hook == "tensor" and probe.modules and not probe.tensors:
        hint = "list parameters, buffers, or values such as fc1:output under `tensors`"
        yield Fault("hook-and-place", "hook `tensor` needs `tensors`, not `modules`", ("hook",), hint)
    if probe.hook not in (None, "tensor") and probe.tensors and not probe.modules:
        hint = "list modules under `modules`, or write `hook: tensor`"
        yield Fault("hook-and-place", f"hook `{probe.hook}` needs `modules`, not `tensors`", ("hook",), hint)


def _parts_of_others(probe: Probe) -> Faults:
    paths = {index: ValuePath.parse(text) for index, text in readable(probe.values)}
    for index, path in paths.items():
        yield from _part_of_another(path, paths.values(), ("values", index))


def _references_to_parts(probe: Probe) -> Faults:
    references = {index: Reference.parse(text) for index, text in readable(probe.tensors) if ":" in text}
    for index, reference in references.items():
        others = [other.value for other in references.values() if other.module == reference.module]
        yield from _part_of_another(reference.value, others, ("tensors", index))


def _part_of_another(path: ValuePath, paths: Iterable[ValuePath], at: tuple[str | int, ...]) -> Faults:
    whole = next((other for other in paths if other != path and _holds(other, path)), None)
    if whole is not None:
        yield Fault("no-effect", f"value `{path}` is part of `{whole}`, which the probe captures already", at, "remove one of the two")


def _holds(whole: ValuePath, part: ValuePath) -> bool:
    """Whether every tensor of `part` is one of `whole`."""
    pairs = zip(whole.keys, part.keys, strict=False)  # what is deeper than the whole is within it
    return whole.root == part.root and len(whole.keys) <= len(part.keys) and all(key in ("*", other) for key, other in pairs)


def _value_and_hook(probe: Probe) -> Faults:
    for index, text in readable(probe.values):
        path = ValuePath.parse(text)
        needs = HOOK_OF[path.root]
        if probe.hook is not None and probe.hook != needs:
            message = f"value `{path}` needs hook `{needs}`, but the probe has `{probe.hook}`"
            yield Fault("hook-and-value", message, ("values", index), "remove `hook`, or write two probes")


def _value_and_place(probe: Probe) -> Faults:
    for index, text in readable(probe.values):
        path, place = ValuePath.parse(text), ("values", index)
        needs = HOOK_OF[path.root]
        if probe.hook is not None and probe.hook != needs:
            continue
        if needs != "tensor" and probe.tensors:
            message = f"value `{path}` belongs to a module; parameters and buffers have `grad` and `data`"
            yield Fault("value-and-place", message, place, "list the module under `modules`, or remove `values`")
        elif needs == "tensor" and not probe.tensors:
            message = f"value `{path}` belongs to a parameter or a buffer"
            yield Fault("value-and-place", message, place, "list it under `tensors` instead of `modules`")


def _data_of_reference(probe: Probe) -> Faults:
    for index, text in readable(probe.values):
        reference = next((one for one in probe.tensors if ":" in one), "") if ValuePath.parse(text).root == "data" else ""
        module, _, value = reference.rpartition(":")
        if module:
            message = f"`data` of `{reference}` is the value of a module, which `modules` and `values` name"
            yield Fault("data-of-value", message, ("values", index), f"write `modules: [{module}]` and `values: [{value}]`")


def _keys_of_value(probe: Probe) -> Faults:
    for index, text in readable(probe.values):
        path = ValuePath.parse(text)
        if path.root in ("grad", "data", "memory") and path.keys:
            what = "a call has three numbers" if path.root == "memory" else "a parameter is one tensor"
            yield Fault("value-keys", f"`{path.root}` has no keys, because {what}", ("values", index), f"write `{path.root}`")


def _edit_of_memory(probe: Probe) -> Faults:
    for index, text in readable(probe.values):
        if ValuePath.parse(text).root == "memory" and probe.edit is not None:
            yield Fault("no-effect", "`memory` is measured and cannot be edited", ("values", index), "remove it, or the `edit`")


def _dims_of_memory(probe: Probe) -> Faults:
    if any(ValuePath.parse(text).root == "memory" for _, text in readable(probe.values)) and probe.dims is not None:
        yield Fault("no-effect", "`dims` has no effect on `memory`, which names its axis itself", ("dims",), "remove it", key=True)


def _stage_of_value(probe: Probe) -> Faults:
    if probe.stage is not None and (not probe.tensors or any(":" in text for _, text in readable(probe.tensors))):
        message = "`stage` has no effect on the value of a module; it selects among gradients of a parameter"
        yield Fault("no-effect", message, ("stage",), "remove it", key=True)


def _stage_of_data(probe: Probe) -> Faults:
    if probe.stage is None or not probe.tensors or any(":" in text for text in probe.tensors):
        return
    if not any(path.root == "grad" for path in probe.value_paths):
        yield Fault("no-effect", "`stage` has no effect on `data`; it selects among gradients", ("stage",), "remove it", key=True)


def _gradients_need_training(probe: Probe) -> Faults:
    if all(path.root.startswith("grad") for path in probe.value_paths) and "train" not in probe.when.phases:
        message = "gradients exist only in phase `train`, which the schedule leaves out"
        yield Fault("no-effect", message, ("when", "phases"), "write `phases: [train]`", key=True)


UNDONE = "remove it, or cancel a default with {from: 0}"


def _calls_of_parameters(probe: Probe) -> Faults:
    calls = probe.when.calls
    if calls is not None and not calls.is_all and probe.tensors and not any(":" in text for text in probe.tensors):
        message = "`calls` has no effect on a parameter, which is not called"
        yield Fault("no-effect", message, ("when", "calls"), UNDONE, key=True)


def _microsteps_of_final(probe: Probe) -> Faults:
    microsteps = probe.when.microsteps
    if probe.stage == "final" and microsteps is not None and not microsteps.is_all:
        message = "`microsteps` has no effect on a final gradient, which is read once, after the optimizer step"
        yield Fault("no-effect", message, ("when", "microsteps"), UNDONE, key=True)


def _types_of_tensors(probe: Probe) -> Faults:
    if not probe.modules and probe.types:
        yield Fault("no-effect", "`types` has no effect on `tensors`; it selects among modules", ("types",), "remove it", key=True)


def _selection_of_exact(key: str) -> Callable[[Probe], Faults]:
    """The rule that a key which selects among matches needs a glob."""

    def rule(probe: Probe) -> Faults:
        chosen = "modules" if probe.modules else "tensors"
        if (key == "types" and chosen == "tensors") or not getattr(probe, key):
            return
        if not any(_is_glob(text) for text in getattr(probe, chosen)):
            message = f"`{key}` has no effect on exact paths; it selects among the matches of a glob"
            yield Fault("no-effect", message, (key,), f"remove it, or write a glob under `{chosen}`", key=True)

    return rule


def _is_glob(text: str) -> bool:
    return ":" not in text and not ModuleGlob(text).is_exact


def _with_edit(key: str) -> Callable[[Probe], Faults]:
    """The rule that a key of captures has no place in a probe that edits."""

    def rule(probe: Probe) -> Faults:
        if getattr(probe, key) and probe.edit is not None:
            message = f"`{key}` has no effect in a probe with `edit`; a probe either captures or edits"
            yield Fault("no-effect", message, (key,), "write two probes", key=True)

    return rule


def _second_accumulation(probe: Probe) -> Faults:
    places = [index for index, transform in readable(probe.transforms) if isinstance(transform, Accumulation)]
    for index in places[1:]:
        kind = probe.transforms[index].kind
        message = f"a second accumulation, `{kind}`, has no effect: after the first there is one value for each epoch"
        yield Fault("no-effect", message, ("transforms", index), "write two probes", key=True)


def _trigger_and_edit(probe: Probe) -> Faults:
    if probe.when.trigger is not None and probe.edit is not None:
        message = "`trigger` has no effect in a probe with `edit`: it selects captures, and an edit makes none"
        yield Fault("no-effect", message, ("when", "trigger"), "write two probes", key=True)


def _trigger_and_accumulation(probe: Probe) -> Faults:
    if probe.when.trigger is None:
        return
    merged = next((transform.kind for _, transform in readable(probe.transforms) if isinstance(transform, Accumulation)), None)
    if merged is not None:
        message = f"`trigger` has no effect with `{merged}`: it selects single steps, and `{merged}` has one value for each epoch"
        yield Fault("no-effect", message, ("when", "trigger"), "write two probes", key=True)


# Of a probe within its spec


def _declared_sinks(spec: Spec, probe: Probe) -> Faults:
    known = [*spec.sinks] or ["captures"]
    for index, sink in readable(probe.sinks):
        if sink not in known:
            message = f"sink `{sink}` is not declared; declared: {_listed(known)}"
            yield Fault("unknown-sink", message, ("sinks", index), nearest(sink, known) or "declare it under `sinks`")


def _declared_model(spec: Spec, probe: Probe) -> Faults:
    yield from _known_model(spec, probe.model, ("model",))


def _known_model(spec: Spec, model: str | None, at: tuple[str, ...]) -> Faults:
    known = [*(spec.models or ())]
    if model is not None and model not in known:
        allowed = f"declared: {_listed(known)}" if known else "the spec declares no `models`"
        hint = nearest(model, known) if known else "remove `model`, or declare `models: {name: Class}`"
        yield Fault("unknown-model", f"model `{model}` is not declared; {allowed}", at, hint)


def _model_of_several(spec: Spec, probe: Probe) -> Faults:
    models = spec.models or {}
    if probe.model is None and (len(models) > 1 or (models and any(other.model is not None for other in spec.probes.values()))):
        message = "the spec declares several models, and the probe names none of them"
        yield Fault("no-model", message, (), f"add `model: {next(iter(models))}`", key=True)


def _edit_allowed(spec: Spec, probe: Probe) -> Faults:
    if not spec.allow_edits and probe.edit is not None:
        message = "the probe changes values of the model, and the spec does not allow edits"
        yield Fault("edits-not-allowed", message, ("edit",), "add `allow_edits: true` at the top level", key=True)


def _sees_without_edit(spec: Spec, probe: Probe) -> Faults:
    if probe.sees is not None and all(other.edit is None for other in spec.probes.values()):
        message = "`sees` has no effect in a spec without an `edit`; every value is the original"
        yield Fault("no-effect", message, ("sees",), "remove it", key=True)


# Of a spec


def _names(key: str) -> Callable[[Spec], Faults]:
    """The rule that the keys of a mapping are names."""

    def rule(spec: Spec) -> Faults:
        for name in getattr(spec, key) or ():
            if message := name_fault(name):
                yield Fault("name", message, (key, name), key=True)

    return rule


def _one_selection(spec: Spec) -> Faults:
    for name, selector in readable_items(spec.models or {}):
        if isinstance(selector, ModelSelector) and selector.instance is not None:
            for key in [key for key in ("trained", "instances") if getattr(selector, key) is not None]:
                message = f"`{key}` has no effect with `instance`, which selects one instance"
                yield Fault("no-effect", message, ("models", name, key), f"remove `instance` or `{key}`", key=True)


def _one_record(spec: Spec) -> Faults:
    records = [name for name, sink in readable_items(spec.sinks) if isinstance(sink, RecordOptions)]
    for name in records[1:]:
        message = f"sinks `{records[0]}` and `{name}` would write the same HDF5 files"
        yield Fault("two-files", message, ("sinks", name), "remove one of them", key=True)


def _one_sink_for_each_file(spec: Spec) -> Faults:
    owners: dict[str, str] = {}
    for name, file in _sink_files(spec):
        owner = owners.setdefault(file, name)
        if reason := file_name_fault(file):
            yield Fault("sink-path", f'sink `{name}` cannot write "{file}"', ("sinks", name), reason, key=True)
        elif owner != name:
            message = f'sinks `{owner}` and `{name}` would write the same file "{file}"'
            yield Fault("two-files", message, ("sinks", name), "write another file name, or remove one of them", key=True)


def _sink_files(spec: Spec) -> Iterator[tuple[str, str]]:
    """The files that sinks declare, each with the name of its sink."""
    for name, sink in readable_items(spec.sinks):
        try:
            files = sink.files() if isinstance(sink, Sink) else ()
        except Unreadable:
            continue
        yield from ((name, file) for file in files)


def _sinks_in_use(spec: Spec) -> Faults:
    used = {sink for probe in spec.probes.values() if probe.edit is None for sink in probe.sinks or [*spec.sinks]}
    for name in spec.sinks if used else ():
        if name not in used:
            yield Fault("no-effect", f"sink `{name}` is not used: every probe names other sinks", ("sinks", name), "remove it", key=True)


def _model_of_clock(spec: Spec) -> Faults:
    yield from _known_model(spec, spec.clock.model, ("clock", "model"))


def _some_enabled(spec: Spec) -> Faults:
    if not any(probe.enabled for probe in spec.probes.values()):
        yield Fault("all-disabled", "every probe is disabled, so nothing would be captured", ("probes",), "enable one", key=True)


def _on_limit(spec: Spec) -> Faults:
    if spec.limits.on_limit == "raise" and spec.limits.bytes_per_epoch is None:
        message = "`on_limit` has no effect without `bytes_per_epoch`"
        yield Fault("no-effect", message, ("limits", "on_limit"), "add `bytes_per_epoch`, or remove it", key=True)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


Rules = tuple[Callable[..., Faults], ...]

RANGE_RULES: Rules = (_at_and_others, _empty_range, _until_before_from, _first_and_every_one, _repeated("at"))
WHEN_RULES: Rules = (_phases, _repeated("phases"))
DEFAULTS_RULES: Rules = (_repeated("sinks"),)
PROBE_RULES: Rules = (
    _place,
    _hook_missing,
    _hook_and_place,
    _parts_of_others,
    _references_to_parts,
    _value_and_hook,
    _value_and_place,
    _data_of_reference,
    _keys_of_value,
    _edit_of_memory,
    _dims_of_memory,
    _stage_of_value,
    _stage_of_data,
    _gradients_need_training,
    _calls_of_parameters,
    _microsteps_of_final,
    _types_of_tensors,
    _selection_of_exact("types"),
    _selection_of_exact("exclude"),
    _with_edit("transforms"),
    _with_edit("sinks"),
    _with_edit("sees"),
    _second_accumulation,
    _trigger_and_edit,
    _trigger_and_accumulation,
    *(_repeated(key) for key in ("modules", "types", "exclude", "tensors", "values", "sinks")),
)
PROBE_IN_SPEC_RULES: Rules = (_declared_sinks, _declared_model, _model_of_several, _edit_allowed, _sees_without_edit)
SPEC_RULES: Rules = (
    _names("probes"),
    _names("sinks"),
    _names("models"),
    _one_selection,
    _one_record,
    _one_sink_for_each_file,
    _sinks_in_use,
    _model_of_clock,
    _some_enabled,
    _on_limit,
)
