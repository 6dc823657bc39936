"""Rules within a condition, and between it and its probe."""

from __future__ import annotations

from probes.component import Accumulation, TensorComparison
from probes.errors import closest, nearest
from probes.spec.cross_checks.fault import Fault, Faults, Rules
from probes.spec.models import Probe, Spec
from probes.spec.partial import is_given, readable
from probes.spec.when import Condition, Trigger

BOUNDS = ("above", "below", "outside")
KEYS = ("series", "loop", "of", *BOUNDS, "deviations", "window")


def _bounded(condition: Condition) -> Faults:
    if not _is_nonfinite(condition) and not any(is_given(condition, bound) for bound in BOUNDS):
        yield Fault("missing-key", "the condition has no bound", (), "add `above:`, `below:` or `outside: [low, high]`", key=True)


def _no_bounds_of_nonfinite(condition: Condition) -> Faults:
    if _is_nonfinite(condition):
        for name in KEYS:
            if is_given(condition, name):
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
    if is_given(condition, "series") and is_given(condition, "loop"):
        message = "`series` and `loop` both say which number is compared"
        yield Fault("wrong-condition", message, ("loop",), "remove one of the two", key=True)
    elif is_given(condition, "loop") and is_given(condition, "of"):
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
    if probe.where is None or any(is_given(probe.where, key) for key in ("of", "series", "loop")):
        return
    merged = next((transform.kind for _, transform in readable(probe.transforms) if isinstance(transform, Accumulation)), None)
    if merged is not None:
        message = f"`where` without `of` compares the stored value, and `{merged}` has one for each epoch"
        yield Fault("wrong-condition", message, ("where",), "add `of`, such as `of: {kind: norm}`", key=True)


def _known_series_of_where(spec: Spec, probe: Probe) -> Faults:
    if probe.where is not None:
        yield from _known_series(spec, probe.where, ("where",))


def _known_series_of_trigger(spec: Spec, probe: Probe) -> Faults:
    if probe.when.trigger is not None:
        yield from _known_series(spec, probe.when.trigger, ("when", "trigger"))


def _known_series(spec: Spec, condition: Condition, at: tuple[str, ...]) -> Faults:
    """The probe whose number is compared must exist, capture, and have one number for each value."""
    name = condition.series
    if name is None:
        return
    if name not in spec.probes:
        message = f"probe `{name}` does not exist; the nearest are {closest(name, spec.probes)}"
        yield Fault("unknown-probe", message, (*at, "series"), nearest(name, spec.probes))
        return
    other = spec.probes[name]
    reason = "is disabled" if not other.enabled else "has an `edit`, and captures nothing" if is_given(other, "edit") else ""
    if reason:
        yield Fault("no-effect", f"probe `{name}` {reason}, so it has no number", (*at, "series"), "name another probe")
    elif not is_given(condition, "of") and any(isinstance(one, Accumulation) for _, one in readable(other.transforms)):
        message = f"probe `{name}` has one value for each epoch, and a condition needs a number in each step"
        yield Fault("wrong-condition", message, (*at, "series"), "add `of`, such as `of: {kind: norm}`, or name another probe")


CONDITION_RULES: Rules = (_bounded, _no_bounds_of_nonfinite, _possible_bounds, _window_of_deviations, _one_place, _one_number)
WHERE_RULES: Rules = (_where_and_accumulation,)
CONDITION_IN_SPEC_RULES: Rules = (_known_series_of_where, _known_series_of_trigger)
