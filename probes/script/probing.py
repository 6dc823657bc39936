"""Probes in a program that knows nothing of them: finding the model, binding to it, following its loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn import Module

from probes.errors import ProbesError, RunError
from probes.runner.attach import attach
from probes.runner.entry import phase_of
from probes.runner.run import Run
from probes.script.loaders import Loaders
from probes.script.model_choice import Models, choice_for
from probes.script.model_finder import ModelFinder
from probes.script.progress import Progress
from probes.script.scaling import Scaling

if TYPE_CHECKING:
    from probes.script.session import RunRequest

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
        self.loaders = Loaders()
        self.finder = ModelFinder(choice_for(request.loaded), self._bind, self._refused)
        self.scaling = Scaling(self._scaled)

    def start(self) -> None:
        """Watch for the model and for loaders."""
        self.loaders.start()
        self.scaling.start()
        self.finder.start()

    def stop_watching(self) -> None:
        """Watch no more; the run, if there is one, is still to be closed."""
        self.finder.stop()
        self.scaling.stop()
        self.loaders.stop()

    @property
    def ended_by(self) -> Exception | None:
        """What we ended the program with: a refusal, a failure, or a trigger."""
        return self.failure or (self.run.watch.error if self.run is not None else None)

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
            self._follow(run)
            self.run = run.__enter__()
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
            run.timeline.next_epoch = request.first_epoch
        return run

    def _refused(self, error: Exception) -> None:
        self.failure = error

    def _follow(self, run: Run) -> None:
        """Put ourselves between the run and what tells it of calls and epochs."""
        enters = run.entry.on_enter

        def on_enter(root: Module) -> None:
            if sanity_checking(root):
                return
            self.loaders.enters(phase_of(root))
            enters(root)
            self._raise_pending(run)

        run.entry.on_enter = on_enter
        run.timeline.listener = Told(run, self.progress)
        self.loaders.timeline = run.timeline

    def _raise_pending(self, run: Run) -> None:
        try:
            run.raise_pending()
        except ProbesError as error:
            self._refused(error)
            raise

    def _scaled(self, optimizer: Any) -> None:
        if self.run is not None and self.run.owns(optimizer):
            self.run.timeline.tick()


def sanity_checking(root: Module) -> bool:
    """Whether Lightning is trying out the validation loop before training; those calls belong to no epoch."""
    return bool(getattr(getattr(root, "_trainer", None), "sanity_checking", False))


class Told:
    """Hands on what the timeline tells a run, and says it to a person."""

    def __init__(self, run: Run, progress: Progress) -> None:
        self.run = run
        self.progress = progress
        self.epoch = 0
        self.wanted = {phase for probe in run.plan.loaded.spec.probes.values() if probe.enabled for phase in probe.when.phases}
        self.unwanted: int | None = 0

    def epoch_begins(self, epoch: int) -> None:
        """An epoch opens."""
        self.epoch = epoch
        self.run.keeper.epoch_begins(epoch)

    def epoch_ends(self, epoch: int, complete: bool, reason: str) -> None:
        """An epoch is over."""
        counts = dict(self.run.timeline.counts)
        self.run.keeper.epoch_ends(epoch, complete, reason)
        self.progress.epoch(self.run, epoch, counts, complete)

    def boundary(self) -> None:
        """A step may be about to end."""
        self.run.boundary()

    def step_pauses(self) -> None:
        """A step of another phase opens within the one that is open."""
        self.run.keeper.step_pauses()
        self.unwanted = None  # steps of two phases: the program does more than one thing

    def step_resumes(self) -> None:
        """That step is over."""
        self.run.keeper.step_resumes()

    def step_ends(self, phase: str, step: int, keep: bool, annex: dict[str, Any]) -> None:
        """A step is over."""
        self.run.keeper.step_ends(phase, step, keep, annex)
        self.progress.step(self.epoch, phase, step)
        if self.unwanted is not None:
            self._notice(phase)

    def _notice(self, phase: str) -> None:
        """Say early that no probe wants what the program does, such as a spec for training around a program that only infers."""
        self.unwanted = None if phase in self.wanted or self.unwanted is None else self.unwanted + 1
        if self.unwanted == PATIENCE:
            self.unwanted = None
            self.progress.say(f"{PATIENCE} steps so far, all of phase `{phase}`, which no probe wants: `when: {{phases: [{phase}]}}` does")
