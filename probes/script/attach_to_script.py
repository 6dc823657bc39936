"""Probes in an unmodified program: find the model, attach to it, and follow its loop."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from probes.errors import PlanError, ProbesError, UsageError
from probes.provenance.code_files import code_reads
from probes.run_directory.launch.launcher import place_in_launch
from probes.runner.clock.answers import Answer, EpochEnded, SeveralUpdates, StepEnded, StepPaused
from probes.runner.run import Run
from probes.runner.start import has_process_group, world
from probes.runner.watch.loader_watch import loader_watch
from probes.runner.watch.watched_pass import FollowedLoop
from probes.script.model.candidate_runs import CandidateRuns
from probes.script.model.choice import MOST_CANDIDATES, Candidate, choice_for
from probes.script.model.finder import ModelFinder
from probes.script.progress import Progress
from probes.script.run_request import RunRequest
from probes.script.spawned_children import ChildName, SpawnedChildren
from probes.script.started_programs import StartedPrograms
from probes.script.without_model import without_model
from probes.spec import Spec

if TYPE_CHECKING:
    from probes.script.framework_logs import FrameworkLogs

PATIENCE = 50  # steps after which the user is warned that the spec captures none of them


class Probing:
    """The part of a session that runs in the program.

    Args:
        request: what the user asks of the run.
        progress: tells the user.
        children: the processes that this one starts.
        child: this process, if the script started it; None for the script's own process.
        place_of_parent: rank and number of processes that such a process began with.

    Attributes:
        runs: the runs, from the first call of a model that fits.
        failure: what we stopped the program with, if we did.
    """

    def __init__(
        self,
        request: RunRequest,
        progress: Progress,
        children: SpawnedChildren,
        child: ChildName | None = None,
        place_of_parent: tuple[int, int] = (0, 1),
    ) -> None:
        self.progress = progress
        self._loop = FollowedLoop(self)
        self.runs = CandidateRuns(request, progress)
        self.failure: Exception | None = None
        self.finder = ModelFinder(choice_for(request.loaded), self)
        self.children = children
        self.programs = StartedPrograms(request.command)
        self.child = child
        self._place_of_parent = place_of_parent
        self._without_rank = False
        self.logs = framework_logs(request, self.runs)

    def start(self) -> None:
        """Begin to watch for the model and for loaders."""
        loader_watch.add(self._loop)
        code_reads.add(self)
        self.finder.start()
        self.programs.start()
        if self.logs is not None:
            self.logs.start()

    def stop_watching(self) -> None:
        """Stop watching; an open run still has to be closed."""
        if self.logs is not None:
            self.logs.stop()
        self.programs.stop()
        self.finder.stop()
        code_reads.remove(self)
        loader_watch.remove(self._loop)

    @property
    def ended_by(self) -> Exception | None:
        """The error with which probes ended the program: a refusal, a failure, or a trigger."""
        return self.failure or next((run.raised for run in self.runs.open_runs if run.raised is not None), None)

    def finish(self, error: BaseException | None) -> ProbesError | None:
        """End the runs after the end of the program.

        Args:
            error: what ended the program, if anything did.

        Returns:
            What is to be said against them, if anything.
        """
        if error is None:
            try:
                self.finder.at_end()
            except PlanError as refusal:
                self.runs.close()
                return refusal
        failure = self.runs.close(error)
        self.finder.census.capture(tree.model for run in self.runs.open_runs for tree in run.plan.trees.values())
        failure = failure or self.children.failure()
        return failure if self.runs.open_runs or error is not None or self.children.joined or self._without_rank else self._unbound()

    def lines(self) -> list[str]:
        """List every model that the program called, and advise if more models were trained than captured."""
        further = self.finder.further() if self.runs.open_runs else []
        if not further:
            return self.finder.census.lines()
        count = "1 further model that fits the spec was" if len(further) == 1 else f"{len(further)} further models that fit the spec were"
        name = next(iter(self.finder.choice.selectors), "model")
        line = f"models: {{{name}: {{class: {further[0].kind}, instances: all}}}}"
        way = f"`{line}` captures every one, as a separate run"
        if self.finder.choice.wants_all:
            way = f"`instances: all` captures the first {MOST_CANDIDATES} models that are called and fit"
        elif any(model.kind != further[0].kind for model in self.finder.census.models if model.captured):
            way = f"`models: {{{name}: {further[0].kind}}}` captures {'it' if len(further) == 1 else further[0].kind} instead"
        return [*self.finder.census.lines(), f"{count} trained and not captured: {way}"]

    def _unbound(self) -> ProbesError | None:
        """The reason why nothing was captured in a program that ended without an error; None if other ranks may have captured."""
        if not (self.finder.census.models or self.finder.census.bare):
            return without_model(
                self.runs.request,
                self.progress,
                "the program called no model in this process, so nothing was captured; "
                "modules that run in other processes, only under a transform of `torch.func` such as `vmap`, "
                "or only inside a compiled function, are not seen",
            )
        return self.finder.refusal()

    # Events of the finder

    def candidate_called(self, candidate: Candidate) -> None:
        """Begin to capture a candidate."""
        if self.child is not None:
            inherited = world() > 1 and not has_process_group() and place_in_launch() == self._place_of_parent
            if inherited or (world() == 1 and not self.child.is_first):
                self._leave_out(self.child.text, inherited)
                return
        try:
            run = self.runs.called(candidate)
        except Exception as error:  # it ends the program, and is remembered, to distinguish it from the program's own
            self.failure = error
            raise
        if run is not None:
            run.observe(RunObserver(run, self.progress))

    def candidate_chosen(self, candidate: Candidate) -> None:
        """Keep the run of a candidate."""
        if self._without_rank:
            return
        try:
            self.runs.keep(candidate)
        except Exception as error:  # it ends the program, and is remembered, to distinguish it from the program's own
            self.failure = error
            raise

    def _leave_out(self, child: str, inherited: bool) -> None:
        """Report that a child without a rank is not captured; its files would be those of the first, or of the rank that started it."""
        if not self._without_rank:
            self._without_rank = True
            why = "and it has the rank of the process that started it" if inherited else "so its rank is not known"
            first = "; process 0 is captured" if not inherited and "spawn" in child else ""
            self.progress.say(f"{child} is not captured: its model is called before `torch.distributed.init_process_group`, {why}{first}")

    def refused(self, error: PlanError) -> None:
        """Record the error that stops the program."""
        self.failure = error

    # A run that listens later gets the reports of passes again; until then they have no effect.

    def pass_begins(self, key: object, loader: object, *, endless: bool, skipped: int) -> None:
        """No effect."""

    def batch_pulled(self, key: object, *, grad: bool, last: bool, before: bool) -> None:
        """No effect."""

    def pass_exhausted(self, key: object) -> None:
        """No effect."""

    def pass_deleted(self, key: object) -> None:
        """No effect."""

    def loader_deleted(self, loader: object) -> None:
        """No effect."""


def framework_logs(request: RunRequest, runs: CandidateRuns) -> FrameworkLogs | None:
    """Passes values that trainers log to the runs; None, without an import, for a spec without values of the loop."""
    if not asks_for_loop(request.loaded.spec):
        return None
    from probes.script.framework_logs import FrameworkLogs

    def log(values: Mapping[str, Any], phase: str) -> None:
        for run in runs.open_runs:
            wanted = {name: value for name, value in values.items() if run.engine.logged.asks_for(name)}
            with suppress(UsageError):  # outside of any epoch, as the last values of a Trainer are
                run.engine.log(wanted, phase)

    return FrameworkLogs(log)


def asks_for_loop(spec: Spec) -> bool:
    """Whether a spec captures values of the loop, or compares them."""
    conditions = [one for probe in spec.probes.values() for one in (probe.where, probe.when.trigger) if one is not None]
    return any(probe.of_loop for probe in spec.probes.values()) or any(one.loop is not None for one in conditions)


class RunObserver:
    """Reports answers of a run that concern a person."""

    def __init__(self, run: Run, progress: Progress) -> None:
        self.run = run
        self.progress = progress
        self.wanted = {phase for probe in run.plan.loaded.spec.probes.values() if probe.enabled for phase in probe.when.phases}
        self.unwanted: int | None = 0

    def __call__(self, answer: Answer) -> None:
        """Report an answer, if it is important."""
        if isinstance(answer, StepEnded):
            self.progress.step(max(self.run.accounts), answer.phase, answer.step)
            self._notice(answer.phase)
        elif isinstance(answer, EpochEnded):
            self.progress.epoch(self.run, answer.epoch, answer.steps, answer.complete)
        elif isinstance(answer, SeveralUpdates):
            self.progress.say(
                "several optimizer steps come on one batch of the loader; they are one step: "
                "`--set clock.step=update` makes each optimizer step a step"
            )
        elif isinstance(answer, StepPaused):
            self.unwanted = None  # steps of two phases, so the program is not limited to one

    def _notice(self, phase: str) -> None:
        """Warn early that no probe captures the program's phase, such as a spec for training with a program for inference."""
        if self.unwanted is None:
            return
        self.unwanted = None if phase in self.wanted else self.unwanted + 1
        if self.unwanted == PATIENCE:
            self.unwanted = None
            self.progress.say(f"{PATIENCE} steps so far, all of phase `{phase}`, which no probe wants: `when: {{phases: [{phase}]}}` does")
