"""Writes a run's epochs: journal, sinks, limits and the disk."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from probes.component import Accumulation
from probes.errors import RunError, StorageError
from probes.hooks.capture.account import LOSSES, Account
from probes.hooks.capture.accumulator import Accumulator, LastClock
from probes.hooks.capture.run_state import CaptureWriter, RunState, StepState
from probes.plan import Plan
from probes.provenance.collect import Surroundings
from probes.provenance.environment import generators
from probes.provenance.loaders import SeenLoaders
from probes.provenance.weights_record import weights_now
from probes.run_directory.ledger import SealedFileInfo
from probes.run_directory.sealer_process import SealFailure
from probes.runner.attached.attached_hooks import Live
from probes.runner.clock.answers import EpochEnded, EpochOpened, StepEnded, StepPaused, StepResumed
from probes.runner.disk_space import DiskSpace
from probes.runner.failures import MOST_REPORTED, Failures
from probes.runner.rules.evaluator import RuleEvaluator
from probes.runner.sink_sessions import RunFacts, SinkSessions, closing_tags
from probes.runner.watch.loader_watch import loader_watch

QUIET = (*LOSSES, "functorch", "no optimizer step", "limit")  # reported when it happened, or of interest to the program only

KEPT_ACCOUNTS = 16  # epochs; so that memory does not grow with them


class EpochJournal(CaptureWriter, Protocol):
    """The destination of the captures of one epoch; the captures of a step count when it is committed."""

    @property
    def captures(self) -> int:
        """Captures so far."""

    @property
    def pending(self) -> bool:
        """Whether the open step has captures."""

    def commit(self, phase: str, step: int, global_step: int, annex: dict[str, Any] | None = None) -> None:
        """Keep the captures of the open step."""

    def abort(self) -> None:
        """Drop the captures of the open step."""

    def pause(self, step: Hashable) -> None:
        """Set them aside while another step is committed."""

    def resume(self, step: Hashable) -> None:
        """Continue a step that was paused."""


class EpochFiles(Protocol):
    """The destination of the epochs of a run: a run directory, or memory."""

    @property
    def directory(self) -> Path:
        """The run directory."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest of this start, as plain data; empty if nothing is written."""

    @property
    def journal(self) -> EpochJournal | None:
        """The journal of the open epoch."""

    @property
    def segment_steps(self) -> int | None:
        """Steps after which an epoch continues in another file."""

    @property
    def sealed(self) -> Sequence[SealedFileInfo]:
        """The files that were sealed."""

    @property
    def seal_failures(self) -> Sequence[SealFailure]:
        """The journals that could not be sealed."""

    def open(self, epoch: int, starts: dict[str, int], first_step: int) -> EpochJournal:
        """Begin an epoch."""

    def is_full(self) -> bool:
        """Count a finished step; return whether the next step begins a new segment."""

    def next_segment(self) -> EpochJournal:
        """End the open segment and begin the next."""

    def close(self, complete: bool, reason: str, closing: dict[str, Any]) -> None:
        """End the epoch."""

    def keep_sources(self, content: bytes) -> dict[str, str]:
        """Write a zip file of sources next to the open journal; its name and SHA-256."""

    def poll(self) -> int:
        """Note what was sealed meanwhile, and return the number of journals that are not sealed yet."""

    def drain(self, timeout: float | None = None) -> None:
        """Wait until every epoch is sealed."""

    def let_go(self) -> None:
        """Forget the open journal, which is that of another process."""


class EpochWriter:
    """Opens, commits and closes the files of epochs.

    Args:
        plan: the bindings.
        recording: the files.
        moment: what the hooks see; its writer is set here.
        live: the hooks.
        failures: what goes wrong.

    Attributes:
        rules: the rules of the run; None without any.
        sinks: the sinks, and what gets captures to the rules; None without either.
        accounts: the counters of the last epochs, one for each binding; those of the first hold the sums of all that are not there.
        loaders: the loaders that the program used, when the run no longer listens; None before that.
    """

    def __init__(self, plan: Plan, recording: EpochFiles, moment: RunState, live: Live, failures: Failures) -> None:
        self.plan = plan
        self.recording = recording
        self.moment = moment
        self.live = live
        self.failures = failures
        spec, say = plan.loaded.spec, lambda text: failures.say(text)
        facts = RunFacts({"probes.run_id": str(recording.manifest.get("run_id", ""))}, lambda: closing_tags(recording.sealed))
        self.rules = RuleEvaluator(plan, failures) if spec.rules else None
        reads = self.rules is not None or spec.reading_sinks
        self.sinks = SinkSessions(plan, recording.directory, moment.rank, say, self.rules, facts) if reads else None
        self.disk_space = DiskSpace(plan, recording.directory)
        self.surroundings = Surroundings(recording.manifest, plan.trees)
        self.accounts: dict[int, list[Account]] = {}
        self.loaders: SeenLoaders | None = None
        self._starts: dict[str, int] = {}
        self._limited = ""
        self._limit = spec.limits.bytes_per_epoch
        bound = zip(plan.bindings, live.taps, strict=True)
        self._merged = [tap for binding, tap in bound if any(isinstance(one, Accumulation) for one in binding.probe.transforms)]

    def open(self, opened: EpochOpened) -> None:
        """Open the journal, the counters and the hooks of an epoch."""
        self._starts = opened.starts
        self.surroundings.begin_epoch()
        self.accounts[opened.epoch] = self.live.reset_counters()
        while len(self.accounts) > KEPT_ACCOUNTS:
            first, second, *_ = self.accounts
            for sums, account in zip(self.accounts[first], self.accounts.pop(second), strict=True):
                sums.absorb(account)
        if not self.failures.stopped:
            with self.failures.storage():
                journal = self.recording.open(opened.epoch, opened.starts, opened.first_step)
                self._write_to(journal)
                self.live.register(opened.epoch)
        if self.failures.stopped:
            self.live.stop_capturing(opened.epoch, "failed")

    def _write_to(self, journal: EpochJournal) -> None:
        """Send the captures of the open epoch to a journal, and through the sinks on their way."""
        self.moment.writer = self.sinks.over(journal, self.moment.epoch, self._starts) if self.sinks is not None else journal

    def close(self, ended: EpochEnded) -> None:
        """Close the counters, and hand the journal to the sealer."""
        self.live.rest()
        self.live.verify()
        self.live.settle()
        for accumulator in self._accumulators():  # also when nothing more is captured: the next epoch has its own results
            accumulator.end_epoch()
        if self.moment.writer is not None:
            step = self.moment.step
            ended_step = StepEnded(self.moment.phase, step, True, (), self._starts.get(self.moment.phase, 0) + step)
            self._commit(ended_step, self.failures.gaps_of(self.moment.opened))
        self.moment.writer = None
        with self.failures.storage():
            reason = ended.reason or self.failures.stopped or self._limited
            self.recording.close(ended.complete and not reason, reason, self._footer(ended))
        self._limited = ""

    def end_step(self, ended: StepEnded, state: StepState, *, nested: bool, overlaps: bool) -> None:
        """Commit a step, or drop it.

        Args:
            ended: the step.
            state: its state.
            nested: whether a step around it continues, so that the file is not cut here.
            overlaps: whether calls of other steps ran at the same time; they are not dropped with it.
        """
        live = self.live
        if live.compared is not None:
            live.compared.end_step(state, keep=ended.keep)
        logged = self.moment.logged.pop(state, {}) if self.moment.logged else {}
        if live.numbers is not None:
            at = LastClock(self.moment.epoch, ended.phase, ended.step, self.moment.microstep, state)
            live.numbers.end_step(state, at, logged, keep=ended.keep)
        for binding, reason in live.end_step(state, whole=ended.keep and not (overlaps or state.overlapped)):
            if binding.in_each_step and reason not in QUIET and not self.failures.stopped:
                self.failures.missing(binding, reason, ended.phase, ended.step)
        if self._merged:
            for accumulator in self._accumulators():
                accumulator.end_step(ended.phase, ended.step, ended.keep, ended.ids, logged)
        gaps = self.failures.gaps_of(state) if self.failures.gaps else []
        if self._is_idle(ended, gaps):
            return
        self._commit(ended, gaps, overlaps=overlaps)
        if not self.disk_space.asked and ended.keep:
            self._ask_for_room()
        if self.recording.segment_steps and self.recording.is_full() and not nested and not self.failures.stopped:
            self._cut(ended)

    def pause(self, paused: StepPaused) -> None:
        """Set the captures of the open step aside while a step of another phase runs within it."""
        if self.recording.journal is not None:
            self.recording.journal.pause(tuple(paused))
        if self.sinks is not None:
            self.sinks.pause(tuple(paused))
        for tap in self.live.taps:
            tap.account.pause(tuple(paused))

    def resume(self, resumed: StepResumed) -> None:
        """Continue a step that was paused."""
        if self.recording.journal is not None:
            with self.failures.storage():
                self.recording.journal.resume(tuple(resumed))
        if self.sinks is not None:
            self.sinks.resume(tuple(resumed))
        for tap in self.live.taps:
            tap.account.resume(tuple(resumed))

    def end(self, *, interrupted: bool, seconds: float) -> None:
        """Wait for the sealer, except if the program was interrupted."""
        self.recording.drain(seconds if interrupted else None)
        found = self.recording.seal_failures
        for failure in found[:MOST_REPORTED]:
            journal = self.recording.directory / failure.journal
            ways = f'it is kept: `probes recover "{self.recording.directory}"`' if journal.exists() else "the journal was removed"
            error = StorageError(f'"{journal}" could not be sealed: {failure.message}; {ways}')
            if self.failures.first is not None:  # a run ends with one error
                self.failures.say(str(error))
            self.failures.add(error)
        if len(found) > MOST_REPORTED:
            self.failures.say(f"{len(found) - MOST_REPORTED} further journals could not be sealed; `probes ls` names the epochs")

    def move_to(self, directory: Path) -> None:
        """Follow the run directory to another name."""
        self.disk_space.directory = directory
        if self.sinks is not None:
            self.sinks.directory = directory

    def _is_idle(self, ended: StepEnded, gaps: list[list[object]]) -> bool:
        """Whether nothing of a step is stored, for example because no probe was due; it is counted in the footer only."""
        if gaps or ended.ids or not ended.keep or self.live.triggers is not None or self.sinks is not None:
            return False
        journal = self.recording.journal
        return journal is not None and not journal.pending

    def _commit(self, ended: StepEnded, gaps: list[list[object]], *, overlaps: bool = False) -> None:
        journal, triggers, sinks, keep = self.recording.journal, self.live.triggers, self.sinks, ended.keep
        if journal is None or self.failures.stopped:
            if triggers is not None:
                triggers.end_step(None, ended.phase, ended.step, keep)
            return
        try:
            if not keep and not overlaps:
                journal.abort()
                if sinks is not None:
                    sinks.end_step(False)
                self._drop_counts()
            annex: dict[str, Any] = {"ids": list(ended.ids)} if ended.ids and ended.keep else {}
            if triggers is not None:
                before = len(triggers.events)
                keep = triggers.end_step(self.moment.writer, ended.phase, ended.step, keep) or keep
                if len(triggers.events) > before:  # for readers that follow the run; the end of the epoch has them too
                    annex["events"] = [{**found.as_dict(), **written} for found, written in triggers.events[before:]]
            if gaps and ended.keep:
                annex["gaps"] = gaps
            if keep and (annex or journal.pending):  # a step without captures is counted in the footer only
                journal.commit(ended.phase, ended.step, ended.global_step, annex)
        except StorageError as error:
            self.failures.stop(error)
            self._drop_counts()
        if sinks is not None:
            failure = sinks.end_step(keep and not self.failures.stopped)
            if failure is not None:
                self.failures.add(failure)
        if self.failures.stopped:
            self.live.stop_capturing(self.moment.epoch, "failed")
        elif self._limit is not None:
            self._keep_limit(self._limit)

    def _drop_counts(self) -> None:
        """Count what is stored only, and not the captures of the open step."""
        for account in self.accounts[self.moment.epoch]:
            account.drop()

    def _cut(self, ended: StepEnded) -> None:
        """Continue the epoch in another file; captures that came late for the last steps belong in this one."""
        writing, self.moment.writer = self.moment.writer is not None, None
        with self.failures.storage():
            if self.recording.journal is not None and self.recording.journal.pending:
                self.recording.journal.commit(ended.phase, ended.step, ended.global_step, {})
            journal = self.recording.next_segment()
            if writing:
                self._write_to(journal)

    def _ask_for_room(self) -> None:
        """Stop the program at its first captures if the disk cannot hold an epoch, and not hours later."""
        journal = self.recording.journal
        if journal is None or not journal.captures:
            return
        try:
            self.disk_space.after(self.accounts[self.moment.epoch])
        except StorageError as error:
            self.failures.stop(error, fatal=True)
            self.live.stop_capturing(self.moment.epoch, "failed")

    def _keep_limit(self, limit: int) -> None:
        """Stop capturing for this epoch once its byte limit is reached."""
        accounts = self.accounts[self.moment.epoch]
        if self.moment.writer is None or sum(account.nbytes for account in accounts) < limit:
            return
        self._limited = f"epoch {self.moment.epoch} reached its limit of {limit} bytes at step {self.moment.step}"
        if self.plan.loaded.spec.limits.on_limit == "raise":
            self.failures.add(RunError(f"{self._limited} (`limits.bytes_per_epoch`)"))
        self.failures.say(f"{self._limited} (`limits.bytes_per_epoch`); the rest of the epoch is not captured")
        self.live.stop_capturing(self.moment.epoch, "limit")
        self.moment.writer = None

    def _accumulators(self) -> list[Accumulator]:
        return [one for tap in self._merged for one in tap.recorders.values() if isinstance(one, Accumulator)]

    def _footer(self, ended: EpochEnded) -> dict[str, Any]:
        """The footer of an epoch's file: steps, counters, random state, environment, and the weights if the spec asks for them."""
        bindings = [
            {"probe": binding.name, "target": binding.target, "value": binding.value, **account.as_dict()}
            for binding, account in zip(self.plan.bindings, self.accounts[ended.epoch], strict=True)
        ]
        found: dict[str, Any] = {"steps": ended.steps, "accounts": bindings, "random": generators().model_dump(mode="json")}
        found |= self.surroundings.end_epoch()
        seen = self.loaders or loader_watch.seen
        found["loaders"] = [*seen.records.values()] if seen is not None else []
        late = self.surroundings.late_sources()
        try:
            found |= {"sources": self.recording.keep_sources(late)} if late else {}
        except StorageError as error:  # do not lose the captures because of the sources
            self.surroundings.unknown["sources"] = str(error)
        if self.surroundings.unknown:
            found["unknown"] = dict(self.surroundings.unknown)
        if self.live.triggers is not None:
            found["trigger"] = self.live.triggers.end_epoch(ended.epoch)
        if self.live.given is not None and self.live.given.tensors:
            found["given"] = self.live.given.end_epoch()
        if self.rules is not None:
            found["rules"] = [verdict.as_dict() for verdict in self.rules.verdicts]
        if self.plan.loaded.spec.provenance.weights == "epochs":
            found |= weights_now(self.live.trees)
        return found
