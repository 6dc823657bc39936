"""What a run keeps: the journal of each epoch, the books of every binding, and what went wrong with either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from probes.errors import ProbesError, RunError, StorageError
from probes.hooks.capture.account import Account
from probes.hooks.capture.run_state import RunState
from probes.hooks.capture.tap import Tap
from probes.plan import Plan
from probes.run_directory.recording import Recording
from probes.runner.accumulations import Accumulations
from probes.runner.closing import closing
from probes.runner.live import Live
from probes.runner.room import Room
from probes.runner.schedule import Schedule
from probes.runner.sink_sessions import SinkSessions
from probes.runner.timeline import Timeline

Call = Callable[[], None]


class Keeper:
    """Opens, commits and closes as the timeline tells it to.

    Args:
        plan: the bindings.
        recording: the files.
        moment: what the hooks see; its writer is set here.
        schedule: the gates.
        clock: the timeline's `rule`, `epoch_steps` and `automatic`.
        on_epoch: called when an epoch's hooks were registered.
        on_boundary: called before a step may end.

    Attributes:
        accounts: the books of every epoch, one for each binding.
        failure: what went wrong first, to be raised when the run is over, or earlier where the spec says so.
        stopped: why nothing is captured any more; empty while all is well.
        fatal: whether it is too early to go on without captures.
    """

    def __init__(
        self, plan: Plan, recording: Recording, moment: RunState, schedule: Schedule, on_epoch: Call, on_boundary: Call, **clock: Any
    ) -> None:
        self.plan = plan
        self.recording = recording
        self.moment = moment
        self.on_epoch = on_epoch
        self.boundary = on_boundary
        self.timeline = Timeline(moment, schedule, self, **clock)
        self.live = Live(plan, moment, schedule, self.failed)
        self.watch = self.live.watch
        self.accumulations = Accumulations(self.live)
        self.sink_sessions = SinkSessions(plan, recording.directory, moment.rank)
        self.room = Room(plan, recording.directory)
        self.accounts: dict[int, list[Account]] = {}
        self.failure: ProbesError | None = None
        self.stopped = ""
        self.fatal = False
        self._limited = ""
        self._bounded = plan.loaded.spec.limits.bytes_per_epoch is not None
        self._nested = False

    @property
    def due_failure(self) -> ProbesError | None:
        """What is to be raised at once: the spec says `on_error: raise`, or it is too early to go on without captures."""
        if self.failure is None:
            return None
        spec = self.plan.loaded.spec
        return self.failure if self.fatal or "raise" in (spec.on_error, spec.limits.on_limit) else None

    def epoch_begins(self, epoch: int) -> None:
        """Open the journal, the books and the hooks of an epoch."""
        self.accounts[epoch] = self.live.reset_counters()
        if not self.stopped:
            with self._storage():
                starts = dict(self.timeline.totals)
                self.moment.writer = self.sink_sessions.over(self.recording.open(epoch, starts), epoch, starts)
                self.live.register(epoch)
                self.on_epoch()

    def epoch_ends(self, epoch: int, complete: bool, reason: str) -> None:
        """Close the books and hand the journal to the sealer."""
        self.live.rest()
        self.live.verify()
        self.live.settle()
        if self.moment.writer is not None:
            self.accumulations.end_epoch()
            self._commit(self.moment.phase, self.moment.step, True, {})  # and what came after its step was over
        self.moment.writer = None
        with self._storage():
            reason = reason or self.stopped or self._limited
            self.recording.close(complete and not reason, reason, closing(self, epoch))
        self._limited = ""

    def step_pauses(self) -> None:
        """Keep the open step's books aside while a step of another phase runs within it."""
        self._nested = True
        for tap in self.live.taps:
            tap.account.pause()

    def step_resumes(self) -> None:
        """Go on with the books of the step around."""
        self._nested = False
        for tap in self.live.taps:
            tap.account.resume()

    def step_ends(self, phase: str, step: int, keep: bool, annex: dict[str, Any]) -> None:
        """Commit a step, or drop it."""
        self.live.end_step()
        if self.accumulations.taps:
            self.accumulations.end_step(phase, step, keep)
        self._commit(phase, step, keep, annex)
        if not self.room.asked and keep:
            self._ask_for_room()
        if self.recording.segment_steps and self.recording.is_full() and not self._nested:
            self._roll()

    def _commit(self, phase: str, step: int, keep: bool, annex: dict[str, Any]) -> None:
        journal = self.recording.journal
        if journal is None or self.stopped:
            self.watch.end_step(None, phase, step, keep)
            return
        try:
            if not keep:
                journal.abort()
                self.sink_sessions.end_step(False)
            keep = self.watch.end_step(self.moment.writer, phase, step, keep) or keep
            if keep and (annex or journal.pending):  # a step of which nothing is stored is counted in the closing alone
                journal.commit(phase, step, self.timeline.totals.get(phase, 0) + step, annex)
        except StorageError as error:
            self._stop(error)
        if self.sink_sessions.sinks:
            self.failure = self.failure or self.sink_sessions.end_step(keep and not self.stopped)
        if self._bounded:
            self._within_limit()

    def _roll(self) -> None:
        """Go on with the epoch in another file."""
        writing, self.moment.writer = self.moment.writer is not None, None
        with self._storage():
            journal = self.recording.next_segment()
            if writing:
                self.moment.writer = self.sink_sessions.over(journal, self.moment.epoch, dict(self.timeline.totals))

    def _ask_for_room(self) -> None:
        """Stop the program at its first captures, and not hours later, where the disk cannot take an epoch."""
        journal = self.recording.journal
        if journal is None or not journal.captures:
            return
        try:
            self.room.after(self.accounts[self.moment.epoch])
        except StorageError as error:
            self._stop(error)
            self.fatal = True

    def _within_limit(self) -> None:
        """Stop capturing for this epoch once its byte limit is reached."""
        limits = self.plan.loaded.spec.limits
        taken = sum(account.nbytes for account in self.accounts[self.moment.epoch]) if limits.bytes_per_epoch else 0
        if limits.bytes_per_epoch is None or taken < limits.bytes_per_epoch or self.moment.writer is None:
            return
        text = f"epoch {self.moment.epoch} reached its limit of {limits.bytes_per_epoch} bytes at step {self.moment.step}"
        if limits.on_limit == "raise" and self.failure is None:
            self.failure = RunError(f"{text} (`limits.bytes_per_epoch`)")
        for account in self.accounts[self.moment.epoch]:
            account.skip("limit")
        self._limited = text
        self.live.rest()
        self.moment.writer = None

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """A disk that fails stops the captures; training goes on unless the spec says otherwise."""
        try:
            yield
        except StorageError as error:
            self._stop(error)

    def _stop(self, error: ProbesError) -> None:
        self.stopped = self.stopped or str(error)
        self.failure = self.failure or error
        self.live.rest()
        self.moment.writer = None

    def failed(self, tap: Tap, error: Exception) -> None:
        """Switch off a probe that failed in a hook, or all where the disk did."""
        if isinstance(error, StorageError):
            self._stop(error)
            return
        binding = self.plan.bindings[self.live.taps.index(tap)]
        tap.broken = True
        tap.account.skip("failed")
        place = f"`{binding.target}`" if binding.target else "the model"
        text = f"probe `{binding.name}` on {place} failed in epoch {self.moment.epoch} step {self.moment.step}: {error}"
        tap.account.error = text
        if self.plan.loaded.spec.on_error == "raise" and self.failure is None:
            self.failure = RunError(text)

    def look_for_unsealed(self) -> None:
        """Remember a journal that the sealer could not seal."""
        for failure in self.recording.sealer.failures:
            text = f"'{self.recording.directory / failure.journal}' could not be sealed: {failure.message}"
            self.failure = self.failure or StorageError(f"{text}; it is kept: `probes recover {self.recording.directory}`")
