"""Rules within a condition, and between it and its probe."""

from __future__ import annotations

from probes.component import Accumulation
from probes.spec.cross_checks.fault import Fault, Faults, Rules
from probes.spec.models import Probe
from probes.spec.partial import is_given, readable
from probes.spec.when import Condition, Trigger

BOUNDS = ("above", "below", "outside")
KEYS = ("of", *BOUNDS, "deviations", "window")


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


def _one_number(condition: Condition) -> Faults:
    of = condition.of
    if of is None:
        return
    if isinstance(of, Accumulation):
        message = f"`{of.kind}` has one value for each epoch, and a condition needs the number of each capture"
        yield Fault("wrong-condition", message, ("of",), "write a transform such as `{kind: norm}`")
    elif of.kind == "python":
        message = "`python` cannot make the number of a condition"
        yield Fault("wrong-condition", message, ("of",), "write it under `transforms`, and remove `of`: then its result is the number")


def _is_nonfinite(condition: Condition) -> bool:
    return isinstance(condition, Trigger) and condition.kind == "nonfinite"


def _where_and_accumulation(probe: Probe) -> Faults:
    if probe.where is None or is_given(probe.where, "of"):
        return
    merged = next((transform.kind for _, transform in readable(probe.transforms) if isinstance(transform, Accumulation)), None)
    if merged is not None:
        message = f"`where` without `of` compares the stored value, and `{merged}` has one for each epoch"
        yield Fault("wrong-condition", message, ("where",), "add `of`, such as `of: {kind: norm}`", key=True)


CONDITION_RULES: Rules = (_bounded, _no_bounds_of_nonfinite, _possible_bounds, _window_of_deviations, _one_number)
WHERE_RULES: Rules = (_where_and_accumulation,)
