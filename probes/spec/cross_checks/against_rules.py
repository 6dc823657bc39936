"""Rules of comparisons: what a value is compared with, and the transform that compares."""

from __future__ import annotations

from probes.component import Accumulation, TensorComparison
from probes.errors import closest, nearest
from probes.module_glob import ModuleGlob
from probes.registry import COMPARISONS
from probes.spec.cross_checks.fault import Fault, Faults, Rules, readable
from probes.spec.models import SOURCES, Probe, Spec


def _one_source(probe: Probe) -> Faults:
    against = probe.against
    if against is None:
        return
    given = [name for name in SOURCES if against.has(name)]
    if not given:
        message = "`against` names no tensor to compare with"
        yield Fault("wrong-comparison", message, ("against",), "add `step: previous`, `series: PROBE` or `run: DIR`", key=True)
    elif len(given) > 1:
        message = f"`against` is one of `step`, `series` and `run`, and has `{given[0]}` and `{given[1]}`"
        yield Fault("wrong-comparison", message, ("against", given[1]), f"remove `{given[1]}`, or write two probes", key=True)
    for key, needs in (("probe", ("run",)), ("target", ("series", "run"))):
        if given and against.has(key) and not {*needs} & {*given}:
            message = f"`{key}` has no effect with `{given[0]}`"
            yield Fault("no-effect", message, ("against", key), f"remove it; it belongs to `{needs[-1]}`", key=True)


def _one_target_of_a_run(probe: Probe) -> Faults:
    against = probe.against
    if against is not None and against.run is not None and against.target is not None and not ModuleGlob(against.target).is_exact:
        message = f"`{against.target}` is a glob, and a value is compared with one series of a run"
        yield Fault("wrong-comparison", message, ("against", "target"), "write the path of one target, or remove it")


def _one_comparison(probe: Probe) -> Faults:
    found = [(index, one) for index, one in readable(probe.transforms) if isinstance(one, TensorComparison)]
    wanted = probe.has("against")
    for index, one in found if not wanted else ():
        message = f"`{one.kind}` compares two tensors, and the probe has no `against`"
        yield Fault("wrong-comparison", message, ("transforms", index), "add `against`, such as `against: {step: previous}`")
    for index, one in found[1:]:
        message = f"a second comparison, `{one.kind}`: a probe has one"
        yield Fault("wrong-comparison", message, ("transforms", index), "write two probes")
    if wanted and not found and len([*readable(probe.transforms)]) == len(probe.transforms) and not probe.has("edit"):
        message = "`against` has no effect without a transform that compares"
        yield Fault("wrong-comparison", message, ("against",), f"add one of {', '.join(COMPARISONS)} to `transforms`", key=True)
    merged = next((index for index, one in readable(probe.transforms) if isinstance(one, Accumulation)), None)
    for index, one in found:
        if merged is not None and merged < index:
            message = f"`{one.kind}` compares the values of steps, and `{probe.transforms[merged].kind}` before it has one for each epoch"
            yield Fault("wrong-comparison", message, ("transforms", index), f"write `{one.kind}` first")


def _known_series(spec: Spec, probe: Probe) -> Faults:
    against = probe.against
    if against is None or against.series is None:
        return
    at = ("against", "series")
    if against.series not in spec.probes:
        message = f"probe `{against.series}` does not exist; the nearest are {closest(against.series, spec.probes)}"
        yield Fault("unknown-probe", message, at, nearest(against.series, spec.probes))
        return
    other = spec.probes[against.series]
    reason = "is disabled" if not other.enabled else "has an `edit`, and captures nothing" if other.has("edit") else ""
    if reason:
        yield Fault("no-effect", f"probe `{against.series}` {reason}, so there is no tensor to compare with", at, "name another probe")
    elif other is probe and not against.has("target"):
        message = "each value of the probe would be compared with itself"
        yield Fault("wrong-comparison", message, at, 'add `target`, such as `target: "**"` to compare each target with each other')


AGAINST_RULES: Rules = (_one_source, _one_target_of_a_run, _one_comparison)
AGAINST_IN_SPEC_RULES: Rules = (_known_series,)
