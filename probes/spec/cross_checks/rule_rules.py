"""Rules of the `rules` of a spec: the probe stores numbers, the bounds can be kept, and the labels exist."""

from __future__ import annotations

from probes.errors import closest, nearest
from probes.signature import Signature, SignatureError
from probes.spec.cross_checks.fault import Fault, Faults, Rules, readable, repeated
from probes.spec.models import LOWER, UPPER, Probe, Rule, Spec


def _known_probe(spec: Spec, rule: Rule) -> Faults:
    if rule.probe not in spec.probes:
        message = f"probe `{rule.probe}` does not exist; the nearest are {closest(rule.probe, spec.probes)}"
        yield Fault("unknown-probe", message, ("probe",), nearest(rule.probe, spec.probes))


def _probe_with_numbers(spec: Spec, rule: Rule) -> Faults:
    probe = spec.probes.get(rule.probe)
    if probe is None:
        return
    reason = "is disabled" if not probe.enabled else "has an `edit`, and stores no numbers" if probe.has("edit") else ""
    if not reason and probe.when.has("trigger"):
        reason = "has a `trigger`, so its numbers wait in memory and are not checked"
    if reason:
        yield Fault("no-effect", f"the rule has no effect: probe `{rule.probe}` {reason}", ("probe",), "name another probe")


def _one_bound_on_a_side(rule: Rule) -> Faults:
    given = [key for key in (*UPPER, *LOWER) if rule.has(key)]
    if not given:
        yield Fault("rule-bounds", "the rule has no bound", (), "add one of `above`, `at_least`, `below`, `at_most`", key=True)
    for pair in (UPPER, LOWER):
        if set(pair) <= set(given):
            message = f"`{pair[0]}` and `{pair[1]}` are bounds of the same side"
            yield Fault("rule-bounds", message, (pair[1],), f"remove `{pair[0]}` or `{pair[1]}`", key=True)


def _bounds_that_can_be_kept(rule: Rule) -> Faults:
    high, low = ([rule.bounds[key] for key in side if key in rule.bounds] for side in (UPPER, LOWER))
    if high and low and (high[0] < low[0] or (high[0] == low[0] and {"at_least", "at_most"} & {*rule.bounds})):
        message = "no number is within the bounds: each one is " + " or ".join(f"{key} {value:g}" for key, value in rule.bounds.items())
        yield Fault("rule-bounds", message, (next(key for key in UPPER if key in rule.bounds),), "swap the two bounds", key=True)


def _divides_a_number(rule: Rule) -> Faults:
    if rule.has("divided_by") and not rule.has("number"):
        yield Fault("no-effect", "`divided_by` has no effect without `number`", ("divided_by",), "add `number`", key=True)


def _known_labels(spec: Spec, rule: Rule) -> Faults:
    probe = spec.probes.get(rule.probe)
    known = _labels(probe) if probe is not None else None
    for key in ("number", "divided_by") if known is not None and probe is not None else ():
        name = getattr(rule, key)
        if name is not None and name not in (known or ()):
            listed = f"the nearest are {closest(name, known)}" if known else "each is one number without a label"
            message = f"the captures of probe `{rule.probe}` have no number `{name}`; {listed}"
            yield Fault("unknown-number", message, (key,), nearest(name, known or ()) or f"remove `{key}`")


def _labels(probe: Probe) -> tuple[str, ...] | None:
    """The names of the numbers of a capture; None if an axis without labels may have any."""
    transforms = [transform for _, transform in readable(probe.transforms)]
    signature = Signature(dims=probe.dims)
    try:
        for transform in transforms:
            signature = transform.out(signature)
    except SignatureError:  # reported with the model, which knows the value
        return None
    if signature.shape == ():
        words = (word for one in transforms for word in (one.kind, getattr(one, "op", None)) if word)
        return tuple(dict.fromkeys(words))
    if not transforms or signature.dims is None or {*signature.dims} - {*signature.coords}:
        return None
    return tuple(str(label) for labels in signature.coords.values() for label in labels)


RULE_RULES: Rules = (repeated("targets"), repeated("leaves"), _one_bound_on_a_side, _bounds_that_can_be_kept, _divides_a_number)
RULE_IN_SPEC_RULES: Rules = (_known_probe, _probe_with_numbers, _known_labels)
