"""What became of a run's probes, and whether that is what the spec asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes.errors import Problem
from probes.hooks.capture.account import REASONS, Account
from probes.plan import Plan
from probes.run_directory.create import shown
from probes.runner.engine import Engine
from probes.runner.loop_report import loop_lines
from probes.signature import size

Accounts = Mapping[int, list[Account]]


@dataclass(frozen=True)
class Row:
    """The books of one probe over all epochs.

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
        plan, writer, clock = engine.plan, engine.writer, engine.clock
        sealed = writer.recording.sealed
        self.rows = [_row(plan, writer.accounts, name) for name in dict.fromkeys(binding.name for binding in plan.bindings)]
        self.files = [one.file for one in sealed]
        self.epochs = len({one.epoch for one in sealed})
        self.head = sealed[-1].head if sealed else ""
        self.seen = clock.seen
        self.steps = {phase: count for phase, count in (clock.totals + clock.counts).items() if count}
        self.loop = loop_lines(clock)
        self.sinks = dict(writer.sinks.failures)
        self.trigger = engine.watch.notes()
        self.directory = writer.recording.directory
        self.problems = verdicts(plan, writer.accounts, clock.totals)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "probes": [vars(row) for row in self.rows],
            "files": list(self.files),
            "ledger_head": self.head,
            "calls_outside_epochs": self.seen.outside,
            "seen": {**self.seen.as_dict(), "steps": dict(self.steps)},
            "warnings": list(self.loop[1:]),
            "sinks_given_up": dict(self.sinks),
            "trigger": list(self.trigger),
            "problems": [problem.as_dict() for problem in self.problems],
        }

    def __str__(self) -> str:
        header = ("probe", "hook", "targets", "fired", "captures", "bytes", "note")
        table = [header, *((r.probe, r.hook, str(r.targets), str(r.fired), str(r.captures), size(r.nbytes), r.note) for r in self.rows)]
        widths = [max(len(row[column]) for row in table) for column in range(len(header))]
        right = {2, 3, 4, 5}
        lines = [
            "  ".join(
                cell.rjust(width) if column in right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        ]
        return "\n".join([*(line.rstrip() for line in lines), *self._ending()])

    def _ending(self) -> list[str]:
        files = f"{self.epochs} {'epoch' if self.epochs == 1 else 'epochs'} sealed in {shown(self.directory)}"
        lines = [files + (f", ledger head {self.head[:16]}" if self.head else "")]
        lines += self.sinks.values()
        lines += self.trigger
        return [*lines, *self.loop]


def _row(plan: Plan, counters: Accounts, name: str) -> Row:
    indices = [binding.index for binding in plan.bindings if binding.name == name]
    bindings = [plan.bindings[index] for index in indices]
    accounts = [epoch[index] for epoch in counters.values() for index in indices]
    skipped: Counter[str] = Counter()
    for account in accounts:
        account.settle()
        skipped.update(account.skipped)
    silent = [index for index in indices if not any(epoch[index].written for epoch in counters.values())]
    notes = [f"{count} {reason}" for reason, count in sorted(skipped.items()) if reason not in ("recompute", "not reached")]
    notes += list(dict.fromkeys(account.drift for account in accounts if account.drift))
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


def verdicts(plan: Plan, counters: Accounts, totals: Mapping[str, int]) -> list[Problem]:
    """Where the run did not do what the spec asked for: probes that captured nothing, targets that missed steps."""
    found = []
    for name in dict.fromkeys(binding.name for binding in plan.bindings):
        bindings = [binding for binding in plan.bindings if binding.name == name]
        books = {binding.index: [epoch[binding.index] for epoch in counters.values()] for binding in bindings}
        where = plan.loaded.locate(("probes", name))
        edits = bindings[0].probe.edit is not None
        waits = bindings[0].probe.when.trigger is not None  # to have nothing to write is what one hopes for
        done = [account.fired if edits or waits else account.written for accounts in books.values() for account in accounts]
        if not any(done):
            why, hint = _why(totals, books)
            message = f"probe `{name}` {'edited' if edits else 'captured'} nothing: {why}"
            found.append(where.at(code="captured-nothing", message=message, hint=hint))
            continue
        for binding in bindings:
            expect = binding.probe.expect.fires if binding.probe.expect else None
            strict = expect == "each_step" or (expect is None and binding.exact)
            missed = sum(account.missed for account in books[binding.index])
            if expect is None:  # a GradScaler that leaves a step out is no fault of the spec
                missed -= sum(account.skipped["no optimizer step"] for account in books[binding.index])
            if strict and missed:
                due = sum(account.expected for account in books[binding.index])
                message = f"probe `{name}`: `{binding.target}` did not fire in {missed} of {due} steps that were due"
                found.append(where.at(code="missed-steps", message=message, hint="`expect: {fires: some}` allows it"))
    return found


def _why(totals: Mapping[str, int], books: dict[int, list[Any]]) -> tuple[str, str]:
    """The reason a probe captured nothing, from its books, and what to do."""
    accounts = [account for epochs in books.values() for account in epochs]
    error = next((account.error for account in accounts if account.error), "")
    if error:
        return error, "`--set on_error=raise` ends the run where it happens"
    if not accounts:
        return "no epoch was begun", "loop over `run.epochs(n)`, or begin one by `run.epoch(i)`"
    skipped: Counter[str] = Counter()
    for account in accounts:
        account.settle()
        skipped.update(account.skipped)
    alive = sum(account.alive for account in accounts)
    if alive:
        skipped["waiting for a backward, which never came"] = alive
    drift = next((account.drift for account in accounts if account.drift), "")
    if drift:
        return drift, ""
    del skipped["not reached"]
    if skipped:
        return ", ".join(f"{count} times {reason}{_meaning(reason)}" for reason, count in skipped.most_common()), ""
    expected = sum(account.expected for account in accounts)
    if not expected:
        return _never_due(totals), "change `when` to phases, epochs and steps that there are"
    why = f"its targets were not reached in any of the {expected} steps that were due"
    return why, "`probes coverage` shows what a script reaches; `enabled: false` switches the probe off"


def _meaning(reason: str) -> str:
    return f" ({REASONS[reason]})" if reason in REASONS else ""


def _never_due(totals: Mapping[str, int]) -> str:
    """That a schedule never came to pass, beside the steps that there were."""
    steps = ", ".join(f"{count} of phase `{phase}`" for phase, count in totals.items() if count)
    return f"its schedule was not due in any step; there were {steps or 'none'}"
