"""Rules across keys: within a range, a schedule or a probe, and between the parts of a spec.

Each rule is a function from a part to the faults in it. A rule reads only what it needs, since it also runs on specs of which some places
cannot be read (`probes.spec.partial`), and stops at such a place.
"""

from __future__ import annotations

from probes.spec.cross_checks.against_rules import AGAINST_IN_SPEC_RULES, AGAINST_RULES
from probes.spec.cross_checks.condition_rules import CONDITION_IN_SPEC_RULES, CONDITION_RULES, WHERE_RULES
from probes.spec.cross_checks.fault import Fault, Faults, checked
from probes.spec.cross_checks.probe_rules import PROBE_RULES
from probes.spec.cross_checks.rule_rules import RULE_IN_SPEC_RULES, RULE_RULES
from probes.spec.cross_checks.schedule_rules import RANGE_RULES, WHEN_RULES
from probes.spec.cross_checks.spec_rules import DEFAULTS_RULES, PROBE_IN_SPEC_RULES, SPEC_RULES
from probes.spec.models import Defaults, Probe, Spec
from probes.spec.partial import readable_items
from probes.spec.when import RANGES, Range, When

__all__ = ["Fault", "faults_of"]


def faults_of(spec: Spec) -> Faults:
    """Every fault across the keys of a spec, as far as the spec can be read."""
    yield from checked(SPEC_RULES, (), spec)
    yield from checked((_of_defaults, _of_probes, _of_rules), (), spec)


def _of_probes(spec: Spec) -> Faults:
    for name, probe in readable_items(spec.probes):
        at = ("probes", name)
        yield from checked((*PROBE_RULES, *AGAINST_RULES), at, probe)
        yield from checked((*PROBE_IN_SPEC_RULES, *AGAINST_IN_SPEC_RULES, *CONDITION_IN_SPEC_RULES), at, spec, probe)
        yield from checked((_of_schedule, _of_where), at, probe)


def _of_rules(spec: Spec) -> Faults:
    for name, rule in readable_items(spec.rules):
        at = ("rules", name)
        yield from checked(RULE_RULES, at, rule)
        yield from checked(RULE_IN_SPEC_RULES, at, spec, rule)


def _of_defaults(spec: Spec) -> Faults:
    if spec.defaults is not None:
        yield from checked(DEFAULTS_RULES, ("defaults",), spec.defaults)
        yield from checked((_of_schedule,), ("defaults",), spec.defaults)


def _of_schedule(part: Probe | Defaults) -> Faults:
    if part.when is not None:
        yield from checked(WHEN_RULES, ("when",), part.when)
        for name in RANGES:
            yield from checked((_of_range,), ("when", name), part.when, name)
        yield from checked((_of_trigger,), ("when", "trigger"), part.when)


def _of_trigger(when: When) -> Faults:
    if when.trigger is not None:
        yield from checked(CONDITION_RULES, (), when.trigger)


def _of_where(probe: Probe) -> Faults:
    if probe.where is not None:
        yield from checked(CONDITION_RULES, ("where",), probe.where)
        yield from checked(WHERE_RULES, (), probe)


def _of_range(when: When, name: str) -> Faults:
    chosen: Range | None = getattr(when, name)
    if chosen is not None:
        yield from checked(RANGE_RULES, (), chosen)
