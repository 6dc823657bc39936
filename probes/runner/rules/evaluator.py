"""Evaluates captures by the rules of a spec, on the host, when their step is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.closing import OutOfBounds, RuleVerdict, verdicts_in_order
from probes.capture_file.dtype_decode import bits_dtype, values
from probes.clock import LOSS_SCALE, Clock, SeriesKey
from probes.errors import Problem, Stopped
from probes.module_glob import ModuleGlob
from probes.plan import Plan
from probes.runner.failures import Failures
from probes.signature import DTYPES
from probes.spec.models import Rule

MOST_ELEMENTS = 1 << 16  # elements of a capture; larger ones take too long to copy and compare
MOST_NAMED = 16  # numbers of a series that a verdict names
Floats = NDArray[np.float64]


class RuleEvaluator:
    """The rules of a run, and their verdicts so far.

    Args:
        plan: the plan; its spec has the rules.
        failures: a broken rule is reported when it happens, for the first series of each; one that says so stops the training.
    """

    def __init__(self, plan: Plan, failures: Failures) -> None:
        self.plan = plan
        self.failures = failures
        self.rules = plan.loaded.spec.rules
        self._evaluated: dict[tuple[SeriesKey, tuple[int, ...]], list[EvaluatedNumbers]] = {}
        self._too_large: dict[str, str] = {}
        self._reported: set[str] = set()

    def covers(self, probe: str) -> bool:
        """Whether a rule is about the captures of a probe."""
        return any(rule.probe == probe for rule in self.rules.values())

    def series(self, key: SeriesKey, dtype: str, shape: tuple[int, ...], labels: Callable[[], Sequence[str]]) -> list[EvaluatedNumbers]:
        """The numbers of a series that rules check.

        Args:
            key: the series.
            dtype: its dtype.
            shape: the shape of its captures.
            labels: gives a label for each element.
        """
        if (key, shape) not in self._evaluated:
            self._evaluated[key, shape] = [*self._numbers(key, dtype, shape, labels)] if self.covers(key.probe) else []
        return self._evaluated[key, shape]

    def _numbers(self, key: SeriesKey, dtype: str, shape: tuple[int, ...], labels: Callable[[], Sequence[str]]) -> list[EvaluatedNumbers]:
        rules = [(name, rule) for name, rule in self.rules.items() if rule.probe == key.probe and _covers(rule, key)]
        if rules and (reason := _unfit(dtype, shape)):
            for name, _ in rules:
                self._too_large.setdefault(name, f"`{key}` {reason}")
            return []
        names = labels() if rules else ()
        made = self.plan.loaded.spec.probes[key.probe].transforms
        single = {word for one in made for word in (one.kind, getattr(one, "op", None))} if shape == () else set()
        found = []
        for name, rule in rules:
            chosen = [at for at, label in enumerate(names) if _is_named(rule.number, label, single)]
            divisor = next((at for at, label in enumerate(names) if rule.divided_by and _is_named(rule.divided_by, label, set())), None)
            if chosen and (divisor is not None or not rule.divided_by):
                found.append(EvaluatedNumbers(name, rule, key, np.array(chosen), [names[at] for at in chosen], divisor))
        return found

    def evaluate(self, numbers: Sequence[EvaluatedNumbers], clock: Clock, payload: bytes, dtype: str) -> None:
        """Evaluate one capture of a committed step.

        Args:
            numbers: the numbers of its series that rules check.
            clock: where it was taken.
            payload: its bytes.
            dtype: its dtype.
        """
        found = values(np.frombuffer(payload, bits_dtype(dtype)), dtype).reshape(-1).astype("f8")
        for one in numbers:
            if one.take(found, clock):
                self._broken(one)

    def _broken(self, one: EvaluatedNumbers) -> None:
        verdict = one.verdict()
        text = f"rule `{one.name}` ({one.rule}) is broken: {verdict}"
        if one.name not in self._reported:
            self._reported.add(one.name)
            self.failures.say(text)
        if one.rule.then == "stop" and self.failures.halt is None:
            self.failures.halt = Stopped(f"{text}; stopped by the rule", by="a rule")

    @property
    def verdicts(self) -> list[RuleVerdict]:
        """The verdicts so far: one for each series that broke a rule, the worst of each rule first."""
        broken = [one for each in self._evaluated.values() for one in each if one.ever.any()]
        return verdicts_in_order(sorted((one.verdict() for one in broken), key=lambda verdict: [*self.rules].index(verdict.rule)))

    def problems(self) -> list[Problem]:
        """Reasons why the run fails: rules with `then: fail` that were broken, and rules that checked nothing."""
        found = []
        for name, rule in self.rules.items():
            where = self.plan.loaded.locate(("rules", name))
            broken = [verdict for verdict in self.verdicts if verdict.rule == name]
            if broken and rule.then == "fail":
                more = f" (and {len(broken) - 1} more series)" if len(broken) > 1 else ""
                found.append(where.at(code="rule-broken", message=f"rule `{name}` ({rule}): {broken[0]}{more}"))
            if not any(one.name == name for each in self._evaluated.values() for one in each):
                reason = self._too_large.get(name, "no capture has a target, leaf and number that it names")
                hint = "`probes ls` lists the series, and `probes show` the labels of their numbers"
                found.append(where.at(code="rule-judged-nothing", message=f"rule `{name}` checked nothing: {reason}", hint=hint))
        return found


def _covers(rule: Rule, key: SeriesKey) -> bool:
    """Whether a rule is about a series of its probe."""
    if key.leaf == LOSS_SCALE:  # the scale of gradients, for all targets of a probe
        return False
    pairs = ((rule.targets, key.target), (rule.leaves, key.leaf))
    return all(not globs or any(text == name or ModuleGlob(text).matches(name) for text in globs) for globs, name in pairs)


def _unfit(dtype: str, shape: tuple[int, ...]) -> str:
    """The reason why captures cannot be checked; empty if they can."""
    elements = int(np.prod(shape, dtype=np.int64))
    if elements > MOST_ELEMENTS:
        return f"has {elements:,} elements, and rules check at most {MOST_ELEMENTS:,}; add a transform such as `stats` or `norm`"
    known = dtype in DTYPES and not dtype.startswith(("complex", "float4"))
    real = known and (dtype == "bool" or values(np.zeros(2, bits_dtype(dtype)), dtype).dtype.kind in "iuf")
    return "" if real else f"has dtype `{dtype}`, whose values are not real numbers; add `abs`"


def _is_named(number: str | None, label: str, single: set[str | None]) -> bool:
    """Whether a rule names a number: by its label, or one part of it, such as `variance` of `variance/3`."""
    return number is None or number == label or number in label.split("/") or (not label and number in single)


@dataclass(eq=False)
class EvaluatedNumbers:
    """The numbers of one series that one rule checks, each with its row of steps out of bounds.

    Attributes:
        name: name of the rule.
        rule: the rule.
        key: the series.
        chosen: (numbers,) indices of the elements.
        labels: their labels.
        divisor: index of the element that divides them.
    """

    name: str
    rule: Rule
    key: SeriesKey
    chosen: NDArray[np.intp]
    labels: Sequence[str]
    divisor: int | None

    def __post_init__(self) -> None:
        count = len(self.chosen)
        self.ever = np.zeros(count, bool)  # whether it has broken the rule
        self._length = np.zeros(count, np.int64)  # steps out of bounds in a row until now
        self._step = np.full(count, -1, np.int64)  # the last of them, by `_serial`
        self._start = np.zeros((count, 3), np.int64)  # epoch, step and global step of the first of them
        self._worst = np.zeros((2, count))  # the worst value of them, and how far it is out of bounds
        self._since = np.zeros((count, 3), np.int64)  # of the first row that broke the rule
        self._longest = np.zeros(count, np.int64)
        self._value = np.zeros(count)
        self._excess = np.full(count, -inf)
        self._serial, self._place, self._rank = 0, (-1, -1), 0

    def take(self, found: Floats, clock: Clock) -> bool:
        """Evaluate a capture.

        Args:
            found: (elements,) its numbers.
            clock: where it was taken.

        Returns:
            Whether the series breaks the rule for the first time.
        """
        numbers = found[self.chosen]
        if self.divisor is not None:
            if found[self.divisor] == 0:
                return False
            numbers = numbers / found[self.divisor]
        self._rank = clock.rank
        if (clock.epoch, clock.step) != self._place:
            self._serial, self._place = self._serial + 1, (clock.epoch, clock.step)
        out = ~self._within(numbers)
        if not out.any():  # the usual case: no row continues
            self._length[:], self._step[:] = 0, -1
            return False
        self._count(numbers, self._beyond(numbers), out, clock)
        before = bool(self.ever.any())
        self._keep(self._length >= self.rule.for_)
        return not before and bool(self.ever.any())

    def _within(self, numbers: Floats) -> NDArray[np.bool_]:
        rule, kept = self.rule, np.ones(len(numbers), bool)
        if rule.above is not None:
            kept &= numbers <= rule.above
        if rule.at_least is not None:
            kept &= numbers < rule.at_least
        if rule.below is not None:
            kept &= numbers >= rule.below
        if rule.at_most is not None:
            kept &= numbers > rule.at_most
        return kept

    def _beyond(self, numbers: Floats) -> Floats:
        """How far numbers are beyond the bounds; infinite for NaN."""
        rule = self.rule
        high = [bound for bound in (rule.above, rule.at_least) if bound is not None]
        low = [bound for bound in (rule.below, rule.at_most) if bound is not None]
        sides = [numbers - bound for bound in high] + [bound - numbers for bound in low]
        beyond: Floats = np.where(np.isnan(numbers), inf, np.max(sides, axis=0))
        return beyond

    def _count(self, numbers: Floats, excess: Floats, out: NDArray[np.bool_], clock: Clock) -> None:
        """Extend the rows of steps, or end them."""
        begins = out & (self._length == 0)
        self._start[begins] = (clock.epoch, clock.step, clock.global_step)
        self._worst[:, begins] = numbers[begins], excess[begins]
        self._length[~out], self._step[~out] = 0, -1
        self._length[out & (self._step != self._serial)] += 1
        self._step[out] = self._serial
        worse = out & ((excess > self._worst[1]) | np.isnan(numbers))
        self._worst[:, worse] = numbers[worse], excess[worse]

    def _keep(self, broken: NDArray[np.bool_]) -> None:
        """Store the facts on the rows that break the rule."""
        first = broken & ~self.ever
        self._since[first] = self._start[first]
        self.ever |= broken
        self._longest[broken] = np.maximum(self._longest[broken], self._length[broken])
        worse = broken & ((self._worst[1] > self._excess) | np.isnan(self._worst[0]))
        self._value[worse], self._excess[worse] = self._worst[0][worse], self._worst[1][worse]

    def verdict(self) -> RuleVerdict:
        """The verdict on the series, which has broken the rule."""
        broken = np.flatnonzero(self.ever)
        earliest = sorted(broken.tolist(), key=lambda at: (*self._since[at, :2].tolist(), at))
        worst = max(broken.tolist(), key=lambda at: (self._excess[at], np.isnan(self._value[at])))
        numbers = tuple(self._number(at) for at in earliest[:MOST_NAMED])
        head = (self.name, str(self.rule), self.rule.then, *self.key, self._rank)
        return RuleVerdict(*head, len(broken), len(self.labels), numbers, float(self._value[worst]), float(self._excess[worst]))

    def _number(self, at: int) -> OutOfBounds:
        lasting = bool(self._length[at] >= self.rule.for_)
        epoch, step, global_step = self._since[at].tolist()
        return OutOfBounds(self.labels[at], epoch, step, global_step, int(self._longest[at]), float(self._value[at]), lasting)
