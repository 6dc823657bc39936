"""Rules between the parts of a spec, and the way through all its parts with the rules of each.

Each rule is a function from a part to the faults in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from probes.component import Sink, TensorComparison
from probes.errors import nearest
from probes.record_options import RecordOptions
from probes.sinks.kernels.run_file import name_fault as file_name_fault
from probes.spec.cross_checks.against_rules import AGAINST_IN_SPEC_RULES, AGAINST_RULES
from probes.spec.cross_checks.fault import Fault, Faults, Rules, Unreadable, checked, readable, readable_items, repeated
from probes.spec.cross_checks.probe_rules import PROBE_RULES
from probes.spec.cross_checks.rule_rules import RULE_IN_SPEC_RULES, RULE_RULES
from probes.spec.cross_checks.when_rules import CONDITION_IN_SPEC_RULES, CONDITION_RULES, RANGE_RULES, WHEN_RULES, WHERE_RULES
from probes.spec.models import Defaults, ModelSelector, Probe, Spec
from probes.spec.texts import name_fault
from probes.spec.when import RANGES, Range, When


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
    if not spec.allow_edits and probe.has("edit"):
        message = "the probe changes values of the model, and the spec does not allow edits"
        yield Fault("edits-not-allowed", message, ("edit",), "add `allow_edits: true` at the top level", key=True)


def _sees_without_edit(spec: Spec, probe: Probe) -> Faults:
    if probe.sees is not None and not any(other.has("edit") for other in spec.probes.values()):
        message = "`sees` has no effect in a spec without an `edit`; every value is the original"
        yield Fault("no-effect", message, ("sees",), "remove it", key=True)


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
    used = {sink for probe in spec.probes.values() if not probe.has("edit") for sink in probe.sinks or [*spec.sinks]}
    unknown = used - {*spec.sinks}  # may be meant for one that is declared
    for name in spec.sinks if used and not unknown else ():
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


DEFAULTS_RULES: Rules = (repeated("sinks"),)
PROBE_IN_SPEC_RULES: Rules = (_declared_sinks, _declared_model, _model_of_several, _edit_allowed, _sees_without_edit)
SPEC_RULES: Rules = (
    _names("probes"),
    _names("sinks"),
    _names("models"),
    _names("rules"),
    _one_selection,
    _one_record,
    _one_sink_for_each_file,
    _sinks_in_use,
    _model_of_clock,
    _some_enabled,
    _on_limit,
)


def faults_of(spec: Spec) -> Faults:
    """Every fault across the keys of a spec, as far as the spec can be read."""
    yield from checked(SPEC_RULES, (), spec)
    yield from checked((_of_defaults, _of_probes, _of_rules), (), spec)


def _of_defaults(spec: Spec) -> Faults:
    if spec.defaults is not None:
        yield from checked(DEFAULTS_RULES, ("defaults",), spec.defaults)
        yield from checked((_of_schedule,), ("defaults",), spec.defaults)


def _of_probes(spec: Spec) -> Faults:
    for name, probe in readable_items(spec.probes):
        at = ("probes", name)
        yield from checked(PROBE_RULES, at, probe)
        yield from checked(PROBE_IN_SPEC_RULES, at, spec, probe)
        yield from checked((_of_schedule,), at, probe)
        yield from checked((_of_trigger_in_spec, _of_where, _of_comparison), at, spec, probe)


def _of_rules(spec: Spec) -> Faults:
    for name, rule in readable_items(spec.rules):
        at = ("rules", name)
        yield from checked(RULE_RULES, at, rule)
        yield from checked(RULE_IN_SPEC_RULES, at, spec, rule)


def _of_schedule(part: Probe | Defaults) -> Faults:
    if part.when is not None:
        yield from checked(WHEN_RULES, ("when",), part.when)
        for name in RANGES:
            yield from checked((_of_range,), ("when", name), part.when, name)
        yield from checked((_of_trigger,), ("when", "trigger"), part.when)


def _of_range(when: When, name: str) -> Faults:
    chosen: Range | None = getattr(when, name)
    if chosen is not None:
        yield from checked(RANGE_RULES, (), chosen)


def _of_trigger(when: When) -> Faults:
    if when.trigger is not None:
        yield from checked(CONDITION_RULES, (), when.trigger)


def _of_trigger_in_spec(spec: Spec, probe: Probe) -> Faults:
    if probe.when.trigger is not None:
        yield from checked(CONDITION_IN_SPEC_RULES, ("when", "trigger"), spec, probe.when.trigger)


def _of_where(spec: Spec, probe: Probe) -> Faults:
    if probe.where is not None:
        yield from checked(CONDITION_RULES, ("where",), probe.where)
        yield from checked(CONDITION_IN_SPEC_RULES, ("where",), spec, probe.where)
        yield from checked(WHERE_RULES, (), probe)


def _of_comparison(spec: Spec, probe: Probe) -> Faults:
    if probe.has("against") or any(isinstance(transform, TensorComparison) for _, transform in readable(probe.transforms)):
        yield from checked(AGAINST_RULES, (), probe)
        yield from checked(AGAINST_IN_SPEC_RULES, (), spec, probe)
