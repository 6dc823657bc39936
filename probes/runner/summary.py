"""The results of a run's probes, and whether they satisfy the spec."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from probes.capture_file.closing import MissingValue, missing_in_words, missing_values, verdicts_in_words
from probes.errors import Problem
from probes.hooks.capture.account import LOSSES, NOT_DUE, REASONS, Account
from probes.hooks.capture.loss_scale import scale_lines
from probes.plan import Binding, Plan
from probes.plan.drift import added_text
from probes.printable import aligned, counted, html_lines, html_table
from probes.run_directory.create import shown
from probes.runner.clock.loop_report import loop_lines
from probes.runner.engine import Engine
from probes.signature import size
from probes.spec import Probe

Accounts = Mapping[int, list[Account]]

UNREACHED = {"not reached", "not called", "not logged", "filtered", "recompute"}
HEADER = ("probe", "hook", "targets", "fired", "captures", "bytes", "note")
RIGHT = HEADER[2:6]
TRAINERS = {
    "Lightning logs": ("pytorch_lightning.core.module", "lightning.pytorch.core.module"),
    "the Trainer of transformers logs": ("transformers.trainer",),
}
RAISE = "`--set on_error=raise` ends the run where it happens"


class MissedValue(NamedTuple):
    """A value that was due, and that a process never reached."""

    probe: str
    target: str
    value: str


@dataclass(frozen=True)
class Row:
    """The counters of one probe over all epochs.

    Attributes:
        probe: its name.
        hook: its hook kind, or kinds.
        targets: distinct targets.
        fired: how often its hooks fired.
        captures: captures written.
        nbytes: their bytes.
        note: why something was not captured.
    """

    probe: str
    hook: str
    targets: int
    fired: int
    captures: int
    nbytes: int
    note: str


class RunSummary:
    """A table with a row for each probe, and the files."""

    def __init__(self, engine: Engine) -> None:
        plan, live, writer, clock = engine.plan, engine.live, engine.writer, engine.clock
        self.being_sealed = writer.recording.poll()
        sealed = writer.recording.sealed
        self.rows = [
            _row(plan, writer.accounts, name, list(live.added.get(name, ())))
            for name in dict.fromkeys(binding.name for binding in plan.bindings)
        ]
        self.files = [one.file for one in sealed]
        self.epochs = len({one.epoch for one in sealed})
        self.head = sealed[-1].head if sealed else ""
        self.seen = clock.seen
        self.steps = {phase: count for phase, count in (clock.totals + clock.counts).items() if count}
        self.loop = loop_lines(clock)
        self.sinks = dict(writer.sinks.failures) if writer.sinks is not None else {}
        self.trigger = live.triggers.notes() if live.triggers is not None else []
        self.scales = [*scale_lines(live.scales)] if live.scales is not None else []
        self.directory = writer.recording.directory
        self.missing = [one for indices in _probes(plan).values() for one in _missing(plan, writer.accounts, indices)]
        self.verdicts = writer.rules.verdicts if writer.rules is not None else []
        was_done = partial(_was_done, engine.captured_before, clock.current.before, engine.moment.rank)
        found = unmet_values(plan, writer.accounts, clock.totals, automatic=clock.automatic, was_done=was_done)
        self.problems = [*(problem for problem, _ in found), *(writer.rules.problems() if writer.rules is not None else ())]
        self.unreached = {problem: value for problem, value in found if value is not None}

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "probes": [vars(row) for row in self.rows],
            "files": list(self.files),
            "ledger_head": self.head,
            "being_sealed": self.being_sealed,
            "calls_outside_epochs": self.seen.outside,
            "seen": {**self.seen.as_dict(), "steps": dict(self.steps)},
            "warnings": list(self.loop[1:]),
            "sinks_given_up": dict(self.sinks),
            "trigger": list(self.trigger),
            "loss_scale": list(self.scales),
            "verdicts": [one.as_dict() for one in self.verdicts],
            "missing": [one.as_dict() for one in self.missing],
            "problems": [problem.as_dict() for problem in self.problems],
        }

    def __repr__(self) -> str:
        captures, epochs = counted(sum(row.captures for row in self.rows), "capture"), counted(self.epochs, "epoch")
        return f'<RunSummary "{self.directory}": {counted(len(self.rows), "probe")}, {captures}, {epochs}>'

    def _repr_html_(self) -> str:
        return html_table(HEADER, self._cells()) + html_lines("\n".join(self.ending()))

    def _cells(self) -> list[tuple[str, ...]]:
        return [(r.probe, r.hook, str(r.targets), str(r.fired), str(r.captures), size(r.nbytes), r.note) for r in self.rows]

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """The table, and the text after it.

        Args:
            width: most characters of a line of the table, as far as names can be shortened; by default any.
        """
        return "\n".join([*aligned(HEADER, self._cells(), RIGHT, width, kept=("note",)), *self.ending()])

    def ending(self, of_launch: bool = False) -> list[str]:
        """The text after the table: the files first, then notes.

        Args:
            of_launch: leave out the verdicts and the missing values, which the summary of all ranks has.
        """
        files = f"{counted(self.epochs, 'epoch')} sealed in {shown(self.directory)}"
        head = f", ledger head {self.head}" if self.head else ""
        late = self.being_sealed
        waits = (
            f"; {counted(late, 'file')} {'is' if late == 1 else 'are'} still being sealed, and the ledger head will change" if late else ""
        )
        lines = [files + head + waits]
        lines += self.sinks.values()
        lines += self.trigger
        lines += [] if of_launch else verdicts_in_words(self.verdicts)
        lines += self.scales
        lines += [] if of_launch else missing_lines(self.missing)
        return [*lines, *self.loop]


def missing_lines(missing: Iterable[MissingValue]) -> list[str]:
    """A line for each missing value whose reason needs more words than the table has."""
    return [f"missing: {line}" for line in missing_in_words(one for one in missing if one.first)]


def _probes(plan: Plan) -> dict[str, list[int]]:
    """The indices of the bindings by probe."""
    found: dict[str, list[int]] = {}
    for binding in plan.bindings:
        found.setdefault(binding.name, []).append(binding.index)
    return found


def _missing(plan: Plan, counters: Accounts, indices: Sequence[int]) -> list[MissingValue]:
    """The gaps of some bindings, over all epochs."""
    found: list[MissingValue] = []
    for index in indices:
        place = {"probe": plan.bindings[index].name, "target": plan.bindings[index].target, "value": plan.bindings[index].value}
        found += missing_values([{**place, **epoch[index].as_dict()} for epoch in counters.values()], ("recompute", "not reached"))
    return found


def _row(plan: Plan, counters: Accounts, name: str, added: Sequence[str]) -> Row:
    indices = _probes(plan)[name]
    bindings = [plan.bindings[index] for index in indices]
    accounts = [epoch[index] for epoch in counters.values() for index in indices]
    for account in accounts:
        account.settle()
    silent = [index for index in indices if not any(epoch[index].written for epoch in counters.values())]
    notes = missing_in_words(_missing(plan, counters, indices), brief=True)
    notes += list(dict.fromkeys(account.drift for account in accounts if account.drift))
    notes += [added_text(added)] if added else []
    notes += [f"{path} is opaque ({kind})" for path, kind in sorted({item for one in accounts for item in (one.opaque or {}).items()})]
    if silent and len(silent) < len(indices):
        notes.append(f"{len(silent)} of {len(indices)} captured nothing")
    return Row(
        name,
        ", ".join(dict.fromkeys(binding.hook for binding in bindings)),
        len({binding.target for binding in bindings}),
        sum(account.fired for account in accounts),
        sum(account.written for account in accounts),
        sum(account.nbytes for account in accounts),
        "; ".join(notes),
    )


def unmet(plan: Plan, counters: Accounts, totals: Mapping[str, int]) -> list[Problem]:
    """Failures to satisfy the spec: probes that captured nothing, values that are missing in due steps."""
    return [problem for problem, _ in unmet_values(plan, counters, totals)]


def unmet_values(
    plan: Plan,
    counters: Accounts,
    totals: Mapping[str, int],
    *,
    automatic: bool = False,
    was_done: Callable[[str, Probe], bool] = lambda name, probe: False,
) -> list[tuple[Problem, MissedValue | None]]:
    """The problems of `unmet`, and the value of each that was never reached.

    Args:
        plan: the bindings.
        counters: their counters, by epoch.
        totals: the steps of the run, by phase.
        automatic: whether this is a run around a script.
        was_done: whether earlier attempts have what a probe is for, by its name; a probe that is due only there lacks nothing.
    """
    found: list[tuple[Problem, MissedValue | None]] = []
    for name, indices in _probes(plan).items():
        bindings = [plan.bindings[index] for index in indices]
        accounts = {index: [epoch[index] for epoch in counters.values()] for index in indices}
        where = plan.loaded.locate(("probes", name))
        edits = bindings[0].probe.edit is not None
        chosen = bindings[0].probe
        waits = _waits(chosen)
        done = [account.fired if edits or waits else account.written for epochs in accounts.values() for account in epochs]
        if not any(done):
            if not any(account.expected for epochs in accounts.values() for account in epochs) and was_done(name, chosen):
                continue
            why, hint = _why(plan, totals, accounts)
            hint = hint or _how_to_log(bindings, automatic=automatic)
            message = f"probe `{name}` {'edited' if edits else 'captured'} nothing: {why}"
            found.append((where.at(code="captured-nothing", message=message, hint=hint), None))
            continue
        for binding in bindings:
            lack = _lack(binding, accounts[binding.index])
            if lack:
                problem = where.at(code="missed-steps", message=f"probe `{name}`: {lack}", hint="`expect: {fires: some}` allows it")
                value = MissedValue(name, binding.target, binding.value)
                found.append((problem, value if _never_reached(accounts[binding.index]) else None))
    return found


def _waits(probe: Probe) -> bool:
    """Whether a probe captures only if something happens; an empty result is the good case."""
    return probe.when.trigger is not None or probe.where is not None


def _was_done(captured: Collection[str], before: Mapping[int, Mapping[str, int]], rank: int, name: str, probe: Probe) -> bool:
    """Whether earlier attempts have captures of a probe; of one that may leave none, whether they made a step in which it is due."""
    if probe.edit is None and not _waits(probe):
        return name in captured
    when = probe.when
    places = ((epoch, phase, count) for epoch, counts in before.items() for phase, count in counts.items() if count)
    return any(when.covers(epoch, phase, rank) and (when.steps is None or when.steps.count(count) > 0) for epoch, phase, count in places)


def _never_reached(accounts: Sequence[Account]) -> bool:
    """Whether the module, operation or program never reached a value, so that another rank may have all of it."""
    reasons = {reason for account in accounts for reason in account.skipped}
    return not any(account.written or account.losses for account in accounts) and reasons <= UNREACHED


def _lack(binding: Binding, accounts: Sequence[Account]) -> str:
    """The gaps of a binding whose value is expected in each due step; empty if there are none."""
    if not binding.in_each_step:
        return ""
    skipped = sum((account.skipped for account in accounts), Counter[str]())
    missed = sum(account.missed for account in accounts)
    if (
        binding.probe.expect is None or binding.probe.expect.fires is None
    ):  # such as the input of a first layer, which needs no gradient: this is not an error of the spec
        missed -= sum(account.lacked[reason] for account in accounts for reason in NOT_DUE)
    lost = sum(skipped[reason] for reason in LOSSES)
    if missed <= 0 and not lost:
        return ""
    due = sum(account.expected for account in accounts)
    value = f"`{binding.value}` of {f'`{binding.target}`' if binding.target else 'the model'}"
    count = f"is missing in {missed} of {due} steps that were due" if missed > 0 else f"could not be taken {_times(lost)}"
    first = next((account.first_loss for account in accounts if account.first_loss), "")
    if waiting := sum(account.alive for account in accounts):
        skipped["no gradient came"] = waiting  # its graph still exists, as that of the last step does
    reasons = ", ".join(f"{reason} {_times(number)}" for reason, number in skipped.most_common() if reason not in ("recompute", "filtered"))
    return f"{value} {count}: {reasons or 'no gradient came'}" + (f" ({first})" if first else "")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _why(plan: Plan, totals: Mapping[str, int], books: dict[int, list[Any]]) -> tuple[str, str]:
    """The reason why a probe captured nothing, from its counters, and what to do."""
    accounts = [account for epochs in books.values() for account in epochs]
    losses = [(index, *one) for index, epochs in books.items() for account in epochs for one in account.losses.items()]
    if losses:
        index, (leaf, reason), loss = losses[0]
        target = f"`{plan.bindings[index].target}`" if plan.bindings[index].target else "the model"
        text = f"`{leaf}` of {target} {reason} {_times(loss.count)}: {loss.first}"
        return text, RAISE if reason in ("failed", "absent") else ""
    if not accounts:
        return "no epoch began", "loop over `run.epochs(n)`, or begin one by `run.epoch(i)`"
    skipped: Counter[str] = Counter()
    for account in accounts:
        account.settle()
        skipped.update(account.skipped)
    alive = sum(account.alive for account in accounts)
    if alive:
        skipped["waiting for a backward pass that did not run"] = alive
    drift = next((account.drift for account in accounts if account.drift), "")
    if drift:
        return drift, ""
    del skipped["not reached"]
    if skipped:
        return ", ".join(
            f"{count} {'time' if count == 1 else 'times'} {reason}{_meaning(reason)}" for reason, count in skipped.most_common()
        ), ""
    expected = sum(account.expected for account in accounts)
    if not expected:
        return _never_due(totals), _schedule_hint(plan.bindings[next(iter(books))].probe, totals)
    if any(account.fired for account in accounts):
        return "every step in which it fired was dropped", "a step is dropped if its body raises, or the program ends within it"
    why = f"its targets were not reached in any of the {expected} steps that were due"
    return why, "`probes coverage` shows what a script reaches; `enabled: false` switches the probe off"


def _how_to_log(bindings: Sequence[Binding], *, automatic: bool) -> str:
    """Advice on a number of the loop that was never logged; what a trainer logs by itself is captured under `probes run` only."""
    if bindings[0].root != "loop" or automatic:
        return ""
    name = bindings[0].keys[0] if bindings[0].keys and bindings[0].keys[0] != "*" else "loss"
    trainers = [words for words, modules in TRAINERS.items() if any(module in sys.modules for module in modules)]
    own = f"; what {' and '.join(trainers)} by itself is captured under `probes run` only" if trainers else ""
    return f"log it with `run.log({name}=...)` while its step is open{own}"


def _meaning(reason: str) -> str:
    return f" ({REASONS[reason]})" if reason in REASONS else ""


def _never_due(totals: Mapping[str, int]) -> str:
    """The sentence that a schedule was never due, with the steps of the run."""
    steps = ", ".join(f"{count} of phase `{phase}`" for phase, count in totals.items() if count)
    if not steps:
        return "the run had no step: the model was not called, or only within transforms of `torch.func`, whose calls are not steps"
    return f"its schedule selects no step of the run, which had {steps}"


def _schedule_hint(probe: Probe, totals: Mapping[str, int]) -> str:
    """The change of a schedule that selects no step."""
    phases = [phase for phase, count in totals.items() if count]
    if not phases:
        return "call the model itself in each step"
    if set(phases) & set(probe.when.phases):
        return "change `when` to phases, epochs and steps that the run has"
    place = f"; `defaults` do not apply to `{probe.edit.kind}`, because it is an edit" if probe.edit is not None else ""
    return f"write `when: {{phases: [{', '.join(phases)}]}}` in this probe{place}"
