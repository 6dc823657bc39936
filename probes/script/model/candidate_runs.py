"""A run for each candidate until it is known which one the script trains; the other runs are removed.

The first candidate writes into the run directory at once. Each further one is a whole run of its own in a directory next to it,
`<run directory>.candidate-2` and so on, so that a process that is killed before the choice leaves runs that every verb can read. Where
a further one is chosen, the first is removed and the other's directory takes its name. Where the spec wants all instances that are
trained, each further one stays next to the first, as `<run directory>.instance-2` and so on, and those that no optimizer has stepped
are removed at the end. A run that is resumed waits for the candidate that it captured before.
"""

from __future__ import annotations

from pathlib import Path

from probes.errors import PlanError, ProbesError, Problem
from probes.run_directory.create import shown
from probes.runner.attach import attach
from probes.runner.run import Run
from probes.runner.start import candidate_before, part
from probes.script.model.choice import Candidate, wants_all
from probes.script.progress import Progress
from probes.script.run_request import RunRequest


class CandidateRuns:
    """The open runs.

    Args:
        request: what the user asks of the run.
        progress: tells the user.
    """

    def __init__(self, request: RunRequest, progress: Progress) -> None:
        self.request = request
        self.progress = progress
        self.runs: dict[Candidate, Run] = {}
        self.kept: Candidate | None = None
        self.wants_all = wants_all(request.loaded.spec.model_selectors)
        self._opened = 0
        self._called = 0
        self._before = candidate_before(Path(request.out)) or 0 if request.resume and request.out is not None else 0

    def called(self, candidate: Candidate) -> Run | None:
        """A candidate is called for the first time: capture it, unless a resumed run captured a later one."""
        number = self._called
        self._called += 1
        if self.runs or number >= self._before:
            return self._open(candidate, number)
        self.progress.say(f"{candidate} fits the spec too; before it was resumed, the run captured one that is called later")
        return None

    def _open(self, candidate: Candidate, number: int) -> Run:
        """Begin to capture a candidate; the call that is about to run is captured too."""
        request = self.request
        first = next(iter(self.runs.values()), None)
        self._opened += 1
        stays = self.wants_all or self.kept is not None
        run = attach(
            candidate.model,
            request.loaded,
            request.out if first is None else self._beside(first.directory, "instance" if stays else "candidate"),
            resume=request.resume and first is None,
            take_over=request.take_over and first is None,
            tags=request.tags,
            data=request.data,
            automatic=True,
            candidate=number,
        )
        if request.first_epoch is not None:
            run.begin_with(request.first_epoch)
        self.runs[candidate] = run
        run.report_to(self.progress.say if first is None else lambda text: self.progress.say(f"{candidate}: {text}"))
        run.start()
        if first is None or stays:
            self.progress.bound(run, candidate.place)
        else:
            place = f'captured in "{shown(run.directory)}"'
            self.progress.say(f"{candidate} fits the spec too; until an optimizer step shows which model is trained, it is {place}")
        return run

    def _beside(self, directory: Path, word: str) -> Path:
        """The next free directory next to a run; a killed script may have left some, which `probes recover` seals."""
        while (beside := directory.with_name(f"{directory.name}.{word}-{self._opened}")).exists() and part() is None:  # the ranks share it
            self._opened += 1
        return beside

    @property
    def open_runs(self) -> list[Run]:
        """The runs that were not discarded, in the order of the candidates' first calls."""
        return list(self.runs.values())

    def keep(self, candidate: Candidate) -> Run:
        """Keep the run of a candidate and discard the others.

        Raises:
            PlanError: the run was chosen too late to have its directory, or another one was captured before it was resumed.
        """
        run = self.runs.get(candidate)
        if run is None:
            raise self._too_late(candidate)
        if self.wants_all:  # an optimizer may step the others later
            self.kept = candidate
            return run
        first = next(iter(self.runs.values()))
        others = [other for other in self.runs if other is not candidate]
        if run is not first and not self._may_move(run):
            raise self._too_late(candidate)
        directory = first.directory
        for other in others:
            self.runs.pop(other).discard()
        if run is not first:
            run.move_to(directory)
        self.kept = candidate
        if others:
            dropped = "; ".join(map(str, others))
            self.progress.say(f"an optimizer steps {candidate}, so it is the model; dropped: {dropped}")
        if run is not first:
            self.progress.bound(run, candidate.place)
        return run

    def _may_move(self, run: Run) -> bool:
        """Whether a run can get the directory of another one: neither earlier attempts nor other ranks have files in it."""
        return not self.request.resume and run.recording.rank is None

    def _too_late(self, candidate: Candidate) -> PlanError:
        """The error for files that other processes share, which cannot be given to another model."""
        what = "a run that is resumed" if self.request.resume else "a launch with several processes"
        other = "was called before it" if candidate in self.runs else "was captured before"
        message = f"{candidate} is the model that is trained, but another that fits the spec {other}"
        return PlanError([Problem("ambiguous-model", f"{message}; in {what} the spec must select the model", "select it under `models`")])

    def close(self, error: BaseException | None = None) -> ProbesError | None:
        """End every run; if none was chosen, each stays in its directory.

        Args:
            error: what ended the program early, if anything did.

        Returns:
            What is to be said against the one that was chosen, if anything.
        """
        failure = None
        first = next(iter(self.runs.values()), None)
        for candidate in [one for one in self.runs if self.kept is not None and one is not self.kept and not one.trained]:
            self.runs.pop(candidate).discard()
        for run in self.open_runs:
            try:
                if first is not None and first not in self.open_runs and run is self.open_runs[0] and self._may_move(run):
                    run.move_to(first.directory)
                run.close(error)
            except ProbesError as found:
                failure = failure or found
        return failure if len(self.runs) == 1 or self.kept is not None else None
