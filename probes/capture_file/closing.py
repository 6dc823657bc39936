"""The closing record of a capture file: missing values, events of triggers and verdicts of rules, as data and as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from probes.printable import html_lines, one_line

BY_DESIGN = ("recompute", "filtered", "not reached", "no optimizer step")  # reasons that concern the program or the spec
MOST_TARGETS = 3  # that a line names
MOST_RANKS = 8  # the same
MOST_NUMBERS = 8  # the same
MOST_SERIES = 8  # that the lines of a rule name
EVENT = dict.fromkeys(("number", "leaf", "target", "kind", "index", "bounds", "epoch", "phase", "step"), "?") | {"steps": 0}
WRITTEN = "epoch {epoch}, {phase} step {step}: {steps} steps were written"
NONFINITE = f"{{number}} in `{{leaf}}` of `{{target}}` ({{kind}}) at {{index}}, {WRITTEN}"
BEYOND = f"{{number}} ({{bounds}}) for `{{leaf}}` of `{{target}}` ({{kind}}), {WRITTEN}"
PLAIN: dict[str, Any] = {
    **dict.fromkeys(("rule", "bounds", "then", "probe", "target", "leaf", "phase"), str),
    **dict.fromkeys(("rank", "broken", "judged"), int),
    **dict.fromkeys(("worst", "excess"), float),
}
"""The fields of a verdict except its numbers, with the converter of each from plain data."""


def has_remarks(closing: Mapping[str, Any]) -> bool:
    """Whether a closing record has missing values, events of triggers or broken rules; otherwise a list need not open the file."""
    trigger = closing.get("trigger")
    events = trigger.get("events") if isinstance(trigger, Mapping) else None
    return bool(missing_values(closing.get("accounts")) or closing.get("rules") or events)


class MissingValue(NamedTuple):
    """The missing captures of one value in one epoch, for one reason.

    Attributes:
        probe: name of the probe.
        target: path of the module, parameter or buffer; empty for the root.
        leaf: path of the value.
        reason: from the closed list of the accounts.
        times: how often.
        first: what was found the first time, and when; empty if the reason says all.
        rank: the process of a launch; None if there is one process.
    """

    probe: str
    target: str
    leaf: str
    reason: str
    times: int
    first: str = ""
    rank: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return self._asdict()


def missing_values(accounts: object, without: Iterable[str] = BY_DESIGN, rank: int | None = None) -> list[MissingValue]:
    """The missing values in the `accounts` of a closing record; empty if they cannot be read.

    Args:
        accounts: the counters of every binding, as plain data.
        without: reasons that do not count.
        rank: the process that says so, of several.
    """
    rows = accounts if isinstance(accounts, list) else []
    found = (one for row in rows if isinstance(row, Mapping) for one in _missing(row))
    return [one._replace(rank=rank) for one in found if one.reason not in without]


def _missing(account: Mapping[str, Any]) -> Iterator[MissingValue]:
    place = (str(account.get("probe", "")), str(account.get("target", "")))
    known = set()
    for leaf, reason, count, first in _rows(account.get("lost")):
        known.add(reason)
        yield MissingValue(*place, leaf, reason, count, first)
    skipped = account.get("skipped")
    for reason, count in skipped.items() if isinstance(skipped, Mapping) else ():
        if reason not in known and isinstance(count, int):
            yield MissingValue(*place, str(account.get("value", "")), str(reason), count)


def _rows(lost: object) -> Iterator[tuple[str, str, int, str]]:
    for row in lost if isinstance(lost, list) else ():
        if isinstance(row, list) and len(row) == 4 and isinstance(row[2], int):
            yield str(row[0]), str(row[1]), row[2], str(row[3])


def missing_in_words(values: Iterable[MissingValue], *, brief: bool = False) -> list[str]:
    """One line for each probe, value and reason, with the targets.

    Args:
        values: what is missing, perhaps of several epochs.
        brief: leave out the name of the probe, and what was found.
    """
    groups: dict[tuple[str, str, str], list[MissingValue]] = {}
    for one in values:
        groups.setdefault((one.probe, one.leaf, one.reason), []).append(one)
    if brief:
        return [_line(leaf, reason, group) for (_, leaf, reason), group in groups.items()]
    return [f"{probe}: {_line(leaf, reason, group)}{_detail(group)}" for (probe, leaf, reason), group in groups.items()]


def _detail(group: list[MissingValue]) -> str:
    first = next((one.first for one in group if one.first), "")
    return f" ({first})" if first else ""


def _line(leaf: str, reason: str, group: list[MissingValue]) -> str:
    targets = list(dict.fromkeys(f"`{one.target}`" if one.target else "the model" for one in group))
    more = f" and {len(targets) - MOST_TARGETS} more" if len(targets) > MOST_TARGETS else ""
    count = sum(one.times for one in group)
    times = "once" if count == 1 else f"{count} times"
    return (
        f"`{leaf}` of {', '.join(targets[:MOST_TARGETS])}{more}: {reason} {times}{_on({one.rank for one in group if one.rank is not None})}"
    )


def _on(ranks: Collection[int]) -> str:
    """The ranks, if there are several."""
    named = ", ".join(map(str, sorted(ranks)[:MOST_RANKS]))
    more = f" and {len(ranks) - MOST_RANKS} more" if len(ranks) > MOST_RANKS else ""
    return f" on {'rank' if len(ranks) == 1 else 'ranks'} {named}{more}" if ranks else ""


def event_line(event: Mapping[str, Any], *, ranks: bool) -> str:
    """Return one line for an event that a trigger recorded.

    Args:
        event: what the closing record of a file states.
        ranks: whether the run has several ranks, so that the line names the rank.
    """
    rank = f"rank {event['rank']}: " if ranks and "rank" in event else ""
    return one_line(rank + (BEYOND if "bounds" in event else NONFINITE).format(**{**EVENT, **event}))


class OutOfBounds(NamedTuple):
    """One number of a series that broke a rule.

    Attributes:
        label: its label, such as `zeros` or `3` for the fourth element; empty for a single number.
        epoch, step, global_step: the first step out of bounds of the first row of steps that broke the rule; `global_step` is -1 if it
            is not known.
        steps: the largest number of steps in a row out of bounds.
        worst: the value furthest out of bounds; NaN is further than any other.
        lasting: whether it was still out of bounds when it was last captured.
    """

    label: str
    epoch: int
    step: int
    global_step: int
    steps: int
    worst: float
    lasting: bool


class RuleVerdict(NamedTuple):
    """The fact that a series broke a rule of the spec.

    Attributes:
        rule: name of the rule.
        bounds: the bounds in words, such as `above 100 in 3 steps in a row`.
        then: what the rule says follows: `note`, `stop` or `fail`.
        probe, target, leaf, phase: the series.
        rank: the process.
        broken: how many of its numbers broke the rule.
        judged: how many of its numbers the rule checks.
        numbers: those that broke it, the earliest first; of many the first ones.
        worst: the value of all of them that is furthest out of bounds.
        excess: how far `worst` is beyond the bound; the verdicts of a rule are sorted by it.
    """

    rule: str
    bounds: str
    then: str
    probe: str
    target: str
    leaf: str
    phase: str
    rank: int
    broken: int
    judged: int
    numbers: tuple[OutOfBounds, ...]
    worst: float
    excess: float

    @property
    def since(self) -> OutOfBounds:
        """The number that was out of bounds first."""
        return self.numbers[0]

    @property
    def series(self) -> str:
        """The series as `probes ls` lists it."""
        phase = "" if self.phase == "train" else f"@{self.phase}"
        return f"{self.probe}/{self.target}:{self.leaf}{phase}"

    def __repr__(self) -> str:
        return f"<RuleVerdict {self.rule} ({self.bounds}): {self.series} since epoch {self.since.epoch} step {self.since.step}>"

    def _repr_html_(self) -> str:
        return html_lines(f"rule {self.rule} ({self.bounds}): {self}")

    def as_dict(self) -> dict[str, Any]:
        """Plain data; a number that is not finite is a text."""
        numbers = [{**one._asdict(), "worst": _plain(one.worst)} for one in self.numbers]
        return {**self._asdict(), "numbers": numbers, "worst": _plain(self.worst), "excess": _plain(self.excess)}

    def __str__(self) -> str:
        return self.text(bool(self.rank))

    def text(self, with_rank: bool) -> str:
        """The verdict in words.

        Args:
            with_rank: whether to name the process.
        """
        first = self.since
        few = f"{self.broken} of {self.judged} numbers of " if self.judged > 1 else ""
        names = [one.label for one in self.numbers[:MOST_NUMBERS] if one.label]
        more = f" and {self.broken - len(names)} more" if self.broken > len(names) else ""
        named = f" ({', '.join(names)}{more})" if names and self.judged > 1 else ""
        rank = f" of rank {self.rank}" if with_rank else ""
        longest = max(one.steps for one in self.numbers)
        still = any(one.lasting for one in self.numbers)
        last = (
            f"and still {'are' if self.broken > 1 else 'is'}"
            if still
            else f"for at most {longest} step{'' if longest == 1 else 's'} in a row"
        )
        where = f"{few}{self.series}{rank}{named}"
        verb = "were" if self.broken > 1 else "was"
        return f"{where} {verb} out of bounds from epoch {first.epoch} step {first.step} on, worst {self.worst:.4g}, {last}"


def rule_verdicts(closings: Iterable[object]) -> list[RuleVerdict]:
    """The verdicts in the closing records of a run; those of a later epoch replace those of an earlier one.

    Args:
        closings: the closing records in order, each of which holds the verdicts of its attempt since it began.

    Returns:
        Verdicts by rule, the series that is furthest out of bounds first; what cannot be read is left out.
    """
    found: dict[tuple[object, ...], RuleVerdict] = {}
    for closing in closings:
        rows = closing.get("rules") if isinstance(closing, Mapping) else None
        for row in rows if isinstance(rows, list) else ():
            verdict = _verdict(row)
            if verdict is not None:
                found[(verdict[0], *verdict[3:8], verdict.judged, verdict.since[:3])] = verdict
    return verdicts_in_order(found.values())


def verdicts_in_order(verdicts: Iterable[RuleVerdict]) -> list[RuleVerdict]:
    """Verdicts by rule in the order of the rules; series are sorted by their excess, the largest first."""
    listed = list(verdicts)
    rules = list(dict.fromkeys(one.rule for one in listed))
    return sorted(listed, key=lambda one: (rules.index(one.rule), -one.excess))


def verdicts_in_words(verdicts: Sequence[RuleVerdict], most: int = MOST_SERIES, ranks: bool = False) -> list[str]:
    """A line for each rule that was broken, and below it a line for each series, the worst first.

    Args:
        verdicts: in order.
        most: how many series of a rule are listed.
        ranks: whether the run has several, so that rank 0 is named, too.
    """
    lines = []
    for rule in dict.fromkeys(one.rule for one in verdicts):
        group = [one for one in verdicts if one.rule == rule]
        count = "1 series" if len(group) == 1 else f"{len(group)} series"
        then = "" if group[0].then == "note" else f" (then: {group[0].then})"
        lines.append(f"rule {rule}{then}: {group[0].bounds}: {count}")
        lines += [f"  {one.text(ranks or bool(one.rank))}" for one in group[:most]]
        if len(group) > most:
            lines.append(f"  and {len(group) - most} more series")
    return lines


def _plain(number: float) -> float | str:
    return number if isfinite(number) else str(number)


def _verdict(row: object) -> RuleVerdict | None:
    """A verdict from plain data; None if it cannot be read."""
    try:
        data = dict(row)  # type: ignore[call-overload]  # it comes out of a file, and may be anything
        numbers = tuple(_number(one) for one in data["numbers"])
        made = {name: kind(data[name]) for name, kind in PLAIN.items()}
        return RuleVerdict(**made, numbers=numbers) if numbers else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _number(data: Any) -> OutOfBounds:
    whole = {key: int(data[key]) for key in ("epoch", "step", "global_step", "steps")}
    return OutOfBounds(label=str(data["label"]), **whole, worst=float(data["worst"]), lasting=bool(data["lasting"]))
