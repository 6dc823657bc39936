"""Rules within a range and within a schedule."""

from __future__ import annotations

from probes.spec.cross_checks.fault import Fault, Faults, Rules, repeated
from probes.spec.partial import readable
from probes.spec.when import Range, When


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


RANGE_RULES: Rules = (_at_and_others, _empty_range, _until_before_from, _first_and_every_one, repeated("at"))
WHEN_RULES: Rules = (_phases, repeated("phases"))
