"""Messages on stderr while a program runs with probes."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

import probes
from probes.printable import counted
from probes.progress.status_line import PAUSE, StatusLine
from probes.run_directory.create import shown, typed
from probes.signature import size

if TYPE_CHECKING:
    from probes.runner.launch_summary import LaunchSummary
    from probes.runner.run import Run
    from probes.spec import LoadedSpec

STEPS = {
    "optimizer": "step = optimizer step",
    "update": "step = each optimizer step, also of several on one batch",
    "batch": "step = batch",
    "forward": "step = call of the model",
}


class Progress:
    """Reports the bindings and the progress of a run.

    Args:
        quiet: say nothing but warnings.
        stream: where to; by default what `sys.stderr` is now, whatever the program makes of it.
    """

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.quiet = quiet
        self.stream = stream or sys.stderr
        self.line = StatusLine(self.stream, (sys.stdout, sys.stderr))
        self._shown = 0.0

    def say(self, text: str) -> None:
        """Write one or more lines."""
        if not self.quiet:
            self.line.say(text)

    def warn(self, text: str) -> None:
        """Write one or more lines, also of a quiet run: of what no error and no exit code tells."""
        self.line.say(text)

    def bound(self, run: Run, place: str) -> None:
        """Report the bindings of the run, and its definition of step and epoch."""
        first = not run.recording.rank  # other candidates have the same plan
        self.say("\n".join([_header(run), *([_target(run, place), *_probes(run), _clock(run)] if first else [])]))

    def step(self, epoch: int, phase: str, step: int) -> None:
        """A step is over; shown on a terminal only."""
        now = time.monotonic()
        if self.line.usable and not self.quiet and now - self._shown > PAUSE:
            self._shown = now
            self.line.show(f"epoch {epoch}  {phase} step {step}")

    def epoch(self, run: Run, epoch: int, counts: dict[str, int], complete: bool) -> None:
        """An epoch is over."""
        accounts = run.accounts.get(epoch, [])
        captures, nbytes = sum(one.written for one in accounts), sum(one.nbytes for one in accounts)
        steps = "  ".join(_phase(phase, count) for phase, count in sorted(counts.items(), reverse=True))
        ending = "" if complete else "  incomplete"
        self.say(f"{_rank(run)}epoch {epoch}  {steps or 'no steps'}  {counted(captures, 'capture')}  {size(nbytes)}{ending}")

    def finished(self, runs: Sequence[Run], models: Sequence[str]) -> None:
        """Print the table of captures, every model that the script called, and the next command."""
        for run in runs:
            every = run.of_all_ranks
            if every is None and run.recording.launch is not None and run.ended_well:
                continue  # the last rank reports for all
            rank = _rank(run).rstrip() if every is None else ""
            width = shutil.get_terminal_size().columns if self.line.usable else None
            table = run.summary().text(width) if every is None else every.text(width)
            self.say("\n".join(["", *([rank] if rank else []), table, *models, f"next: probes ls {typed(run.directory)}"]))

    def without_model(self, rank: int, why: str, every: LaunchSummary | None) -> None:
        """A rank of a launch called no model; the last rank also has the table of all."""
        width = shutil.get_terminal_size().columns if self.line.usable else None
        table = ["", every.text(width), f"next: probes ls {typed(every.directory)}"] if every is not None else []
        self.say("\n".join([f"rank {rank}  {why}", *table]))


def _rank(run: Run) -> str:
    """The prefix of a line in a launch with several processes, whose lines are mixed."""
    return "" if run.recording.rank is None else f"rank {run.recording.rank}  "


def _header(run: Run) -> str:
    loaded: LoadedSpec = run.plan.loaded
    digest = f" (sha256 {loaded.files[0][1][:8]})" if loaded.files else ""
    name = loaded.files[0][0] if loaded.files else loaded.spec.name
    again = f"  (attempt {run.past.attempt}, from epoch {run.next_epoch})" if run.past.attempt > 1 else ""
    return f"{_rank(run)}probes {probes.__version__}  spec {name}{digest}  ->  {shown(run.directory)}{again}"


def _target(run: Run, place: str) -> str:
    plan = run.plan
    kinds = ", ".join(tree.root.kind if not name else f"{name}: {tree.root.kind}" for name, tree in plan.trees.items())
    names = {binding.name for binding in plan.bindings}
    targets = {(binding.model, binding.target) for binding in plan.bindings}
    return f"bound to {kinds} (first call, {place}): {counted(len(names), 'probe')}, {counted(len(targets), 'target')}"


def _probes(run: Run) -> list[str]:
    lines = []
    for name in dict.fromkeys(binding.name for binding in run.plan.bindings):
        bindings = [binding for binding in run.plan.bindings if binding.name == name]
        hooks = ", ".join(dict.fromkeys(binding.hook for binding in bindings))
        dropped = len(run.plan.dropped.get(name, ()))
        note = f"  {counted(dropped, 'match', 'matches')} cannot fire: probes plan" if dropped else ""
        lines.append((name, hooks, f"{counted(len({binding.target for binding in bindings}), 'target')}{note}"))
    widths = [max(len(line[column]) for line in lines) for column in range(2)]
    return [f"  {name.ljust(widths[0])}  {hook.ljust(widths[1])}  {rest}" for name, hook, rest in lines]


def _clock(run: Run) -> str:
    clock: Any = run.plan.loaded.spec.clock
    epoch = (
        f"{clock.epoch_steps} steps" if clock.epoch_steps else "pass over the training loader; without a loader, all steps are in epoch 0"
    )
    change = "" if clock.epoch_steps else "; to change this: --set clock.epoch_steps=N"
    return f"{STEPS[clock.step]}, epoch = {epoch}{change}"


def _phase(phase: str, steps: int) -> str:
    return f"train {counted(steps, 'step')}" if phase == "train" else f"{phase} {steps}"
