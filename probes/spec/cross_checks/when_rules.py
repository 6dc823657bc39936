"""Rules of `when` and `where`: within a range and a schedule, within a condition, and between a condition and its probe."""

from __future__ import annotations

from probes.component import Accumulation, TensorComparison
from probes.errors import closest, nearest
from probes.spec.cross_checks.fault import Fault, Faults, Rules, readable, repeated
from probes.spec.models import Probe, Spec
from probes.spec.when import Condition, Range, Trigger, When

BOUNDS = ("above", "below", "outside")
KEYS = ("series", "loop", "of", *BOUNDS, "deviations", "window")


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


def _bounded(condition: Condition) -> Faults:
    if not _is_nonfinite(condition) and not any(condition.has(bound) for bound in BOUNDS):
        yield Fault("missing-key", "the condition has no bound", (), "add `above:`, `below:` or `outside: [low, high]`", key=True)


def _no_bounds_of_nonfinite(condition: Condition) -> Faults:
    if _is_nonfinite(condition):
        for name in KEYS:
            if condition.has(name):
                message = f"`{name}` has no effect on `nonfinite`, which looks at every element"
                yield Fault("no-effect", message, (name,), "remove it, or write `kind: threshold`", key=True)


def _possible_bounds(condition: Condition) -> Faults:
    above, below, outside = condition.above, condition.below, condition.outside
    if outside is not None and (above is not None or below is not None):
        other = "above" if above is not None else "below"
        message = f"`outside` cannot be combined with `{other}`; it has both bounds"
        yield Fault("range", message, ("outside",), f"remove `{other}`", key=True)
    elif outside is not None and len(outside) != 2:
        message = f"`outside` has {len(outside)} numbers, and needs the two ends of a range"
        yield Fault("range", message, ("outside",), "write [low, high]")
    elif outside is not None and outside[0] > outside[1]:
        message = f"`outside` has {outside[0]:g} above {outside[1]:g}, so every number is outside"
        yield Fault("range", message, ("outside",), f"write [{outside[1]:g}, {outside[0]:g}]")
    elif above is not None and below is not None and above >= below:
        message = f"no number is above {above:g} and below {below:g}"
        yield Fault("range", message, ("below",), f"for numbers beyond both write `outside: [{below:g}, {above:g}]`")


def _window_of_deviations(condition: Condition) -> Faults:
    if condition.window is not None and not condition.deviations:
        message = "`window` has no effect without `deviations`, which compares with a running mean"
        yield Fault("no-effect", message, ("window",), "add `deviations: true`, or remove it", key=True)


def _one_place(condition: Condition) -> Faults:
    if condition.has("series") and condition.has("loop"):
        message = "`series` and `loop` both say which number is compared"
        yield Fault("wrong-condition", message, ("loop",), "remove one of the two", key=True)
    elif condition.has("loop") and condition.has("of"):
        message = "`of` has no effect with `loop`: a logged value is the number"
        yield Fault("no-effect", message, ("of",), "remove it", key=True)


def _one_number(condition: Condition) -> Faults:
    of = condition.of
    if of is None:
        return
    if isinstance(of, Accumulation):
        message = f"`{of.kind}` has one value for each epoch, and a condition needs the number of each capture"
        yield Fault("wrong-condition", message, ("of",), "write a transform such as `{kind: norm}`")
    elif isinstance(of, TensorComparison):
        message = f"`{of.kind}` compares two tensors, and `of` has one"
        yield Fault("wrong-condition", message, ("of",), "write it under `transforms` with `against`: conditions compare its result")
    elif of.kind == "python":
        message = "`python` cannot make the number of a condition"
        yield Fault("wrong-condition", message, ("of",), "write it under `transforms`, and remove `of`: then its result is the number")


def _is_nonfinite(condition: Condition) -> bool:
    return isinstance(condition, Trigger) and condition.kind == "nonfinite"


def _where_and_accumulation(probe: Probe) -> Faults:
    if probe.where is None or any(probe.where.has(key) for key in ("of", "series", "loop")):
        return
    merged = next((transform.kind for _, transform in readable(probe.transforms) if isinstance(transform, Accumulation)), None)
    if merged is not None:
        message = f"`where` without `of` compares the stored value, and `{merged}` has one for each epoch"
        yield Fault("wrong-condition", message, ("where",), "add `of`, such as `of: {kind: norm}`", key=True)


def _known_series(spec: Spec, condition: Condition) -> Faults:
    """The probe whose number is compared must exist, capture, and have one number for each value."""
    name = condition.series
    if name is None:
        return
    if name not in spec.probes:
        message = f"probe `{name}` does not exist; the nearest are {closest(name, spec.probes)}"
        yield Fault("unknown-probe", message, ("series",), nearest(name, spec.probes))
        return
    other = spec.probes[name]
    reason = "is disabled" if not other.enabled else "has an `edit`, and captures nothing" if other.has("edit") else ""
    if reason:
        yield Fault("no-effect", f"probe `{name}` {reason}, so it has no number", ("series",), "name another probe")
    elif not condition.has("of") and any(isinstance(one, Accumulation) for _, one in readable(other.transforms)):
        message = f"probe `{name}` has one value for each epoch, and a condition needs a number in each step"
        yield Fault("wrong-condition", message, ("series",), "add `of`, such as `of: {kind: norm}`, or name another probe")


RANGE_RULES: Rules = (_at_and_others, _empty_range, _until_before_from, _first_and_every_one, repeated("at"))
WHEN_RULES: Rules = (_phases, repeated("phases"))
CONDITION_RULES: Rules = (_bounded, _no_bounds_of_nonfinite, _possible_bounds, _window_of_deviations, _one_place, _one_number)
WHERE_RULES: Rules = (_where_and_accumulation,)
CONDITION_IN_SPEC_RULES: Rules = (_known_series,)
