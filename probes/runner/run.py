"""A run: a model with probes attached, from the first epoch to the last sealed file.

The program's side is a line: `ProgramEvents` and the loop's own words (`RunLoops`) tell the `Engine` of events, its `RunClock`
answers what follows, and the engine carries that out on hooks and files. Nothing calls back.

Around a script a run may be tried before it is known to be the right one: `attach(..., automatic=True)` claims the directory,
`start()` puts the hooks on the model (within the first call: that call is captured too), `updates` tells whether an optimizer has
stepped the model, and the run is either kept, `close(error)`, or taken back with its files, `discard()`. `observe` hands out
every answer of the clock after it was carried out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any
from weakref import WeakSet, finalize

from torch import Tensor

from probes.errors import ProbesError, RunError, Stopped, StorageError, UsageError
from probes.hooks.capture.account import Account
from probes.hooks.capture.model_copies import clean_copies
from probes.hooks.capture.signal_errors import from_signal_handler
from probes.plan import Plan
from probes.printable import html_lines
from probes.progress.stderr import tell
from probes.provenance.child_processes import child_imports
from probes.provenance.code_files import code_reads
from probes.run_directory.launch.end_note import leave
from probes.run_directory.recording import Recording
from probes.run_directory.resume import PreviousAttempts
from probes.runner.clock.event_counts import EventCounts
from probes.runner.engine import Engine, Observer
from probes.runner.launch_summary import LaunchSummary, deferred_name, end_note, note_without_model
from probes.runner.program_events import ProgramEvents
from probes.runner.program_frames import EntryFrame, entered_from, still_executes
from probes.runner.run_loops import RunLoops, reason_of
from probes.runner.summary import RunSummary

EXIT_SECONDS = 1.5  # how long an interrupted program waits for the sealer, which then continues by itself


class Run(RunLoops):
    """A model with probes attached. Use it as a context manager; leaving it takes every hook off the model.

    Attributes:
        plan: what the spec means on this model.
        directory: where the files are.
        of_all_ranks: what all ranks of a launch captured, for the rank that is the last to end.
    """

    def __init__(
        self, plan: Plan, recording: Recording, past: PreviousAttempts | None = None, *, automatic: bool = False, rank: int = 0
    ) -> None:
        self.plan = plan
        self.directory: Path = recording.directory
        self.recording = recording
        self.past = past or PreviousAttempts()
        engine = Engine(plan, recording, self.past, automatic=automatic, rank=rank)
        super().__init__(engine, ProgramEvents(engine))
        self._pid = os.getpid()
        self._entered = False
        self._over = False
        self._entered_at: EntryFrame | None = None
        self.of_all_ranks: LaunchSummary | None = None
        self._ended_well = False
        self._unused = finalize(self, _never_entered, self.directory, self._pid)
        _ATTACHED.add(self)

    # Life cycle

    def __enter__(self) -> Run:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close(error)
        except StorageError as failure:  # a disk error must not keep the program from saving its model
            if self.plan.loaded.spec.on_error == "raise" or self.engine.failures.fatal:
                raise
            if str(failure) != self.engine.failures.stopped:  # else it was said when it happened
                tell(f"error: {failure}")

    def start(self) -> None:
        """Put the hooks on the model and begin to listen to the program.

        Raises:
            UsageError: the run was entered before, another run has its directory, or another process has attached it.
        """
        if os.getpid() != self._pid:
            raise UsageError(
                f'the run in "{self.directory}" was attached by process {self._pid}, of which this one is a fork: '
                "call `probes.attach` after the fork"
            )
        if self._over or self._entered:
            raise UsageError(f'the run in "{self.directory}" was entered before: attach again, with `resume=True` to continue it')
        self._unused.detach()
        for note in self.plan.notes:
            if note.code == "graph-break":  # it costs time in every step
                self.engine.failures.say(note.message)
        self.engine.live.stand()
        clean_copies.start()
        child_imports.start()
        code_reads.add(self)
        self._entered = True
        self._entered_at = entered_from(sys._getframe(1), __file__)
        self.events.start()
        _RUNS.add(self)

    def observe(self, observer: Observer) -> None:
        """Register a function that is called with every answer of the clock (`probes.runner.clock.answers`) after it was carried out."""
        self.engine.observers.append(observer)

    def report_to(self, say: Callable[[str], None]) -> None:
        """Register a function that is called with each line for a person; by default the lines go to stderr."""
        self.engine.failures.say = say

    def close(self, error: BaseException | None = None) -> None:
        """End the run: the open epoch is closed and sealed, and every hook comes off the model.

        Args:
            error: what ended the loop early, if anything did; the step that was open is then dropped.

        Raises:
            RunError: the loop ended well, but the spec was not satisfied.
            StorageError: the disk failed; where the spec does not say `on_error: raise`, leaving the `with` block prints it instead.
        """
        if not self._entered or os.getpid() != self._pid:
            return
        self._entered, self._over = False, True
        self.events.stop()
        interrupted = error is not None and not isinstance(error, Stopped)
        if interrupted:
            self.recording.sealer.hurry()
        exits = isinstance(error, SystemExit) and not from_signal_handler(error)  # a handler interrupts the loop wherever it is
        if exits:
            self.engine.clock.program_exits()
        try:
            with self.engine.last_event():
                self._tell(self.engine.clock.epoch_ends, complete=error is None or exits, reason="" if exits else reason_of(error))
            self.engine.writer.end(interrupted=interrupted, seconds=EXIT_SECONDS)
        finally:
            self._take_off()
            self.recording.release()
        if error is None:
            self._ended_well = True
            self._leave_launch()
            self._check_captured()

    def discard(self) -> None:
        """Undo the run: nothing is sealed, and its directory is removed, except for files of other ranks and of earlier attempts."""
        if not self._entered or os.getpid() != self._pid:
            return
        self._entered, self._over = False, True
        self.events.stop()
        with self.engine.last_event():
            self._take_off()
            self.recording.discard()
            self.engine.go_inert()
        self.recording.remove()  # while this process still owns it
        launch, rank = self.recording.launch, self.recording.rank
        if launch is not None and rank is not None and self.directory.exists():  # so that nobody takes its files for lost
            leave(self.directory, launch, rank, note_without_model("its run was discarded"))
        self.recording.release()

    def give_way(self, *, take_over: bool) -> None:
        """Release the directory for another run: one that was never entered is withdrawn.

        Args:
            take_over: end also a run that was entered and not left, such as by a notebook's cell that failed; its open step is dropped.

        Raises:
            StorageError: `take_over` is asked, and the code that entered the run still executes.
        """
        if not self._entered and not self._over and os.getpid() == self._pid:
            self._over = True
            self._unused.detach()
            self.recording.owned.withdraw()
        elif self._entered and take_over and os.getpid() == self._pid:
            if still_executes(self._entered_at):
                raise StorageError(
                    f'run directory "{self.directory}" is in use by pid {self._pid}, which is this process, and the code that entered the '
                    "run still executes: call its `run.close()` first"
                )
            with suppress(ProbesError):
                self.close(InterruptedError("another run in this process took over the directory"))

    def move_to(self, directory: Path) -> None:
        """Give the run directory another name on the same file system; open files stay open.

        Raises:
            StorageError: the directory cannot be renamed.
        """
        self.recording.move_to(directory)
        self.directory = directory
        self.engine.writer.move_to(directory)

    def _take_off(self) -> None:
        if self.engine.writer.sinks is not None:
            self.engine.writer.sinks.close()
        self.engine.live.remove()
        clean_copies.stop()
        child_imports.stop()
        code_reads.remove(self)

    def _leave_launch(self) -> None:
        """Leave the note of this rank; the last rank prints the summary of all."""
        launch, rank = self.recording.launch, self.recording.rank
        if launch is not None and rank is not None and self.failure is None:
            notes = leave(self.directory, launch, rank, end_note(self.summary()))
            self.of_all_ranks = LaunchSummary(notes, self.directory) if notes is not None else None

    def _check_captured(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.past.attempt > 1 and not self.accounts:
            return  # a finished job was started again, and had nothing left to do
        summary = self.summary()
        problems = summary.problems
        if self.recording.launch is not None:
            problems = [one for one in problems if not deferred_name(summary, one)]
            problems += self.of_all_ranks.problems if self.of_all_ranks is not None else ()
        if problems:
            raise RunError("\n".join(str(problem) for problem in problems))

    def go_inert(self) -> None:
        """Stop capturing, in a process that was forked from that of the run."""
        self.events.stop()
        self.engine.go_inert()

    # State

    @property
    def failure(self) -> ProbesError | None:
        """The failure that ended the captures, or the trigger that stopped the training."""
        return self.engine.failures.first or self.events.raised or self.engine.failures.halt

    @property
    def ended_well(self) -> bool:
        """Whether the program left the run, or its own end closed it, without an error."""
        return self._over and self._ended_well

    @property
    def raised(self) -> ProbesError | None:
        """The exception that the run has raised into the program, if any."""
        return self.events.raised or self.engine.failures.halt

    @property
    def accounts(self) -> dict[int, list[Account]]:
        """The counters of the last 16 epochs, one for each binding; the first epoch holds the sums of all others."""
        return self.engine.writer.accounts

    @property
    def seen(self) -> EventCounts:
        """Counts of the events of the program."""
        return self.engine.clock.seen

    @property
    def updates(self) -> int:
        """The number of optimizer steps on parameters of the clock's model."""
        return self.seen.updates

    def begin_with(self, epoch: int) -> None:
        """Give the first epoch a number."""
        self.engine.clock.begin_with(epoch)

    def _repr_html_(self) -> str:
        return html_lines(repr(self))

    def __repr__(self) -> str:
        state = "over" if self._over else "entered" if self._entered else "not entered"
        return f'<Run "{self.directory}": {len(self.plan.bindings)} bindings, {state}>'

    def summary(self) -> RunSummary:
        """The captures so far, as a table; `str()` gives text, `.as_dict()` plain data."""
        return RunSummary(self.engine)

    # Requests of the program

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Take every hook off the model for the body, then put them back: for `torch.jit.script`, tracing and export.

        What the model does in the body is not captured and moves no clock.
        """
        self.events.stop()
        self.engine.live.remove()
        try:
            yield
        finally:
            self.engine.live.stand()
            if self.engine.clock.epoch is not None:
                self.engine.live.register(self.engine.clock.epoch)
            self.events.start()

    def set(self, **given: Any) -> None:
        """Give other tensors to the edits with `from: {given: NAME}`, from the next time on that they are applied.

        Args:
            given: tensors, arrays or numbers by name, which are copied. The file of the epoch has their digests.

        Raises:
            UsageError: no edit takes a tensor of this name, or a value is not a tensor.
        """
        self.engine.set_given(given)

    def edit(self, probe: str, target: str | None = None) -> Mapping[str, Tensor]:
        """The tensors that an edit drew when it was last applied, such as `permutation` and `lam` of a mixup.

        Args:
            probe: name of the probe.
            target: its target, if it has several.

        Returns:
            Tensors on the host by name; empty for an edit that draws nothing.

        Raises:
            UsageError: there is no such edit, or it has several targets.
        """
        edits = self.engine.live.editors
        editors = edits.get(probe, {})
        wanted = {target: editors[target]} if target in editors else editors if target is None else {}
        if len(wanted) != 1:
            known = ", ".join(f"`{name}` on `{place}`" for name, places in edits.items() for place in places)
            raise UsageError(
                f"edit('{probe}'{f', {target!r}' if target is not None else ''}) names {len(wanted)} edits; there are: {known or 'none'}"
            )
        return MappingProxyType(next(iter(wanted.values())).drawn)


_RUNS: WeakSet[Run] = WeakSet()
_ATTACHED: WeakSet[Run] = WeakSet()


def _never_entered(directory: Path, process: int) -> None:
    """Say of a run that is about to be forgotten that it was without effect; its directory is released."""
    if os.getpid() == process:
        hint = "write `with probes.attach(...) as run:`"
        tell(f'warning: the run in "{directory}" was attached and never entered, so it captured nothing: {hint}')


def open_runs() -> list[Run]:
    """The runs of this process that are entered and not over."""
    return [run for run in tuple(_RUNS) if run._entered]


def attached_in(directory: Path) -> list[Run]:
    """The runs of this process in a directory, finished ones included."""
    return [run for run in tuple(_ATTACHED) if run.directory == directory]


def _forked() -> None:
    """Forked children, such as the workers of a DataLoader, carry copies of the hooks, and must not write to the parent's files."""
    for run in tuple(_RUNS):
        run.go_inert()
        run.engine.forked = True
    if _RUNS:
        child_imports.follow()


os.register_at_fork(after_in_child=_forked)
