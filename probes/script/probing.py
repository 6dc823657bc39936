"""Probes in a program that knows nothing of them: finding the model, binding to it, following its loop."""

from __future__ import annotations

from probes.errors import ProbesError, RunError
from probes.runner.attach import attach
from probes.runner.clock_answers import Answer, EpochEnded, SeveralUpdates, StepEnded, StepPaused
from probes.runner.loader_watch import loader_watch
from probes.runner.run import Run
from probes.script.model_choice import Models, choice_for
from probes.script.model_finder import ModelFinder
from probes.script.progress import Progress
from probes.script.run_request import RunRequest

PATIENCE = 50  # steps until a spec that wants none of them is told so


class Probing:
    """The live side of a session.

    Attributes:
        run: the run, once a model was found.
        failure: what we stopped the program with, if we did.
    """

    def __init__(self, request: RunRequest, progress: Progress) -> None:
        self.request = request
        self.progress = progress
        self.run: Run | None = None
        self.failure: Exception | None = None
        self.finder = ModelFinder(choice_for(request.loaded), self._bind, self._refused)

    def start(self) -> None:
        """Watch for the model and for loaders."""
        loader_watch.add(self)
        self.finder.start()

    def stop_watching(self) -> None:
        """Watch no more; the run, if there is one, is still to be closed."""
        self.finder.stop()
        loader_watch.remove(self)

    @property
    def ended_by(self) -> Exception | None:
        """What we ended the program with: a refusal, a failure, or a trigger."""
        return self.failure or (self.run.raised if self.run is not None else None)

    def verdict(self) -> ProbesError:
        """Why nothing was bound in a program that ended well."""
        if not self.finder.seen:
            return RunError(
                "the program called no model in this process, so nothing was captured; "
                "modules that run in other processes, or only inside a compiled function, are not seen"
            )
        return self.finder.refusal()

    def _bind(self, models: Models, place: str) -> None:
        try:
            run = self._attach(models)
            run.observe(RunObserver(run, self.progress))
            run.start()
            self.run = run
            self.progress.bound(run, place)
        except Exception as error:  # it ends the program, and is told from the program's own by being remembered
            self._refused(error)
            raise

    def _attach(self, models: Models) -> Run:
        request = self.request
        run = attach(
            models, request.loaded, request.out, resume=request.resume, take_over=request.take_over, tags=request.tags, automatic=True
        )
        if request.first_epoch is not None:
            run.begin_with(request.first_epoch)
        return run

    def _refused(self, error: Exception) -> None:
        self.failure = error

    # Passes are told again to a run that listens later; until then nothing follows from them.

    def pass_begins(self, key: object, loader: object, *, endless: bool) -> None:
        """Nothing follows."""

    def batch_pulled(self, key: object, *, grad: bool, last: bool) -> None:
        """Nothing follows."""

    def pass_exhausted(self, key: object) -> None:
        """Nothing follows."""

    def pass_gone(self, key: object) -> None:
        """Nothing follows."""

    def loader_gone(self, loader: object) -> None:
        """Nothing follows."""


class RunObserver:
    """Tells a person what a run answers to the program's events."""

    def __init__(self, run: Run, progress: Progress) -> None:
        self.run = run
        self.progress = progress
        self.wanted = {phase for probe in run.plan.loaded.spec.probes.values() if probe.enabled for phase in probe.when.phases}
        self.unwanted: int | None = 0

    def __call__(self, answer: Answer) -> None:
        """Say what is worth a line."""
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
            self.unwanted = None  # steps of two phases: the program does more than one thing

    def _notice(self, phase: str) -> None:
        """Say early that no probe wants what the program does, such as a spec for training around a program that only infers."""
        if self.unwanted is None:
            return
        self.unwanted = None if phase in self.wanted else self.unwanted + 1
        if self.unwanted == PATIENCE:
            self.unwanted = None
            self.progress.say(f"{PATIENCE} steps so far, all of phase `{phase}`, which no probe wants: `when: {{phases: [{phase}]}}` does")
