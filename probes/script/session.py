"""A program with probes: from its first import of torch to the last sealed file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from probes.errors import ProbesError, RunError
from probes.run_directory.create import started_here
from probes.script.import_hook import ImportHook
from probes.script.program import Program, ProgramEnding, show, wait_for_threads
from probes.script.progress import Progress
from probes.script.replaced_process import ReplacedProcess
from probes.script.run_request import RunRequest

if TYPE_CHECKING:
    from probes.script.attach_to_script import Probing


@dataclass(frozen=True)
class ProgramOutcome:
    """The result of a program with probes.

    Attributes:
        code: the exit code: that of the program, or else ours.
        failure: what we have to say against it, if anything.
    """

    code: int
    failure: ProbesError | None = None


class Session:
    """Runs one program with one spec."""

    def __init__(self, request: RunRequest, progress: Progress) -> None:
        self.request = request
        self.progress = progress
        self.probing: Probing | None = None
        self._pid = os.getpid()

    def run(self, program: Program) -> ProgramOutcome:
        """Run the program to its end and close the run."""
        program.check()
        with started_here():
            return self._run(program)

    def _run(self, program: Program) -> ProgramOutcome:
        import_hook = ImportHook("torch", self._torch_is_there)
        replaced = ReplacedProcess(self.request.command, self._is_open, self.progress.say)
        import_hook.start()
        replaced.start()
        try:
            ending = self._ended(program.execute())
        finally:
            replaced.stop()
            import_hook.stop()
        return self._finish(ending) if os.getpid() == self._pid else ProgramOutcome(ending.code)  # the run belongs to the parent

    def _is_open(self) -> bool:
        return self.probing is not None and bool(self.probing.runs.open_runs)

    def _torch_is_there(self) -> None:
        from probes.script.attach_to_script import Probing

        self.probing = Probing(self.request, self.progress)
        self.probing.start()

    def _ended(self, ending: ProgramEnding) -> ProgramEnding:
        """Show the error of the main code, and let its threads end: they may train."""
        if ending.error is None or self.probing is None or ending.error is not self.probing.ended_by:
            ending = show(ending)
        return wait_for_threads(ending)

    def _finish(self, ending: ProgramEnding) -> ProgramOutcome:
        probing = self.probing
        if probing is not None:
            probing.stop_watching()
        failure = probing.ended_by if probing is not None else None
        if failure is not None and not isinstance(failure, ProbesError):
            raise failure  # a bug of probes, reported as one
        if probing is not None:
            failure = self._close(probing, ending) or failure
        elif not ending.code:
            failure = self._without_torch()
        ours = failure is not None and ending.error in (None, failure)
        return ProgramOutcome(failure.exit_code if failure is not None and ours else ending.code, failure)

    def _without_torch(self) -> ProbesError | None:
        """The error of a program that did not import torch; None if other ranks may have imported it."""
        from probes.run_directory.launch.launcher import place_in_launch  # nearly every program imports torch
        from probes.script.without_model import without_model

        why = "the program did not import torch, so no probe could fire"
        return without_model(self.request, self.progress, why) if place_in_launch()[1] > 1 else RunError(why)

    def _close(self, probing: Probing, ending: ProgramEnding) -> ProbesError | None:
        """End the runs and print the summary; for a program that failed, do not report that it captured nothing."""
        found = probing.finish(ending.error)
        self.progress.finished(probing.runs.open_runs, probing.lines())
        return found if probing.runs.open_runs or not (ending.code or probing.failure) else None
