"""A program with probes: from its first import of torch to the last sealed file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from probes.errors import ProbesError, RunError
from probes.run_directory.create import started_here
from probes.run_directory.launch.launcher import place_in_launch
from probes.script.import_hook import ImportHook
from probes.script.program import Program, ProgramEnding, show, wait_for_threads
from probes.script.progress import Progress
from probes.script.replaced_process import ReplacedProcess
from probes.script.run_request import RunRequest
from probes.script.spawned_children import ChildName, SpawnedChildren

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


class ProgramWatch:
    """Watches a process of the program, and those that it starts: from the first import of torch on, which may come in any of them.

    Args:
        request: what the user asks of the run.
        progress: tells the user.
        child: this process, if the script started it; None for the script's own process.

    Attributes:
        probing: what watches the model; None until torch is imported.
    """

    def __init__(self, request: RunRequest, progress: Progress, child: ChildName | None = None) -> None:
        self.request = request
        self.progress = progress
        self.child = child
        self.probing: Probing | None = None
        self.children = SpawnedChildren(request, progress.say, self.stop, type(self), self.has_run)
        self._place = place_in_launch() if child is not None else (0, 1)
        self._import_hook = ImportHook("torch", self._torch_is_there)
        self._step: Callable[[], None] | None = None
        self._pid = os.getpid()

    def start(self) -> None:
        """Begin to watch."""
        self._import_hook.start()
        self.children.start()

    def stop(self) -> None:
        """Stop watching; an open run still has to be closed."""
        self.children.stop()
        self._import_hook.stop()
        if self._step is not None:
            self._step()
            self._step = None
        if self.probing is not None:
            self.probing.stop_watching()

    def has_run(self) -> bool:
        """Whether a run is open."""
        return self.probing is not None and bool(self.probing.runs.open_runs)

    def directories(self) -> list[Path]:
        """The directories of the open runs."""
        return [run.directory for run in self.probing.runs.open_runs] if self.probing is not None else []

    def finish(self, error: BaseException | None) -> ProbesError | None:
        """End the runs after the end of the program, and print their summary.

        Args:
            error: what ended the program, if anything did.

        Returns:
            What is to be said against them, if anything.
        """
        if self.probing is None:
            return self.children.failure()
        found = self.probing.finish(error)
        self.progress.finished(self.probing.runs.open_runs, self.probing.lines())
        return found

    def _torch_is_there(self) -> None:
        from probes.hooks.capture.tracing import breaks_graph
        from probes.runner.watch.process_hooks import optimizer_begins

        breaks_graph(type(self)._tell_of_fork)
        self._step = optimizer_begins.add(self._tell_of_fork)
        if os.getpid() == self._pid:
            from probes.script.attach_to_script import Probing

            self.probing = Probing(self.request, self.progress, self.children, self.child, self._place)
            self.probing.start()

    def _tell_of_fork(self, *_args: object) -> None:
        """Report once in a forked process that it trains and is not captured."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self.progress.say(f"process {self._pid} trains a model and is not captured, because it was forked from the program")


class Session:
    """Runs one program with one spec."""

    def __init__(self, request: RunRequest, progress: Progress) -> None:
        self.request = request
        self.progress = progress
        self.watch = ProgramWatch(request, progress)
        self._pid = os.getpid()

    def run(self, program: Program) -> ProgramOutcome:
        """Run the program to its end and close the run."""
        program.check()
        with started_here():
            return self._run(program)

    def _run(self, program: Program) -> ProgramOutcome:
        replaced = ReplacedProcess(self.request.command, self.watch.has_run, self.progress.warn, self.watch.directories)
        self.watch.start()
        replaced.start()
        try:
            ending = self._ended(program.execute())
        finally:
            replaced.stop()
            self.watch.stop()
        return self._finish(ending) if os.getpid() == self._pid else ProgramOutcome(ending.code)  # the run belongs to the parent

    def _ended(self, ending: ProgramEnding) -> ProgramEnding:
        """Show the error of the main code, and let its threads end: they may train."""
        return wait_for_threads(ending if ending.error is not None and ending.error is self._ended_by else show(ending))

    @property
    def _ended_by(self) -> Exception | None:
        return self.watch.probing.ended_by if self.watch.probing is not None else None

    def _finish(self, ending: ProgramEnding) -> ProgramOutcome:
        stopped = self._ended_by
        if stopped is not None and not isinstance(stopped, ProbesError):
            raise stopped  # a bug of probes, reported as one
        found = self.watch.finish(ending.error)
        if self.watch.probing is None and found is None and not (ending.code or self.watch.children.joined):
            found = self._without_torch()
        nothing = self.watch.probing is not None and not self.watch.has_run()
        if nothing and (ending.code or stopped is not None):
            found = None  # a program that failed does not have to capture anything
        failure = found or stopped
        ours = failure is not None and ending.error in (None, failure)
        return ProgramOutcome(failure.exit_code if failure is not None and ours else ending.code, failure)

    def _without_torch(self) -> ProbesError | None:
        """The error of a program that did not import torch; None if other ranks may have imported it."""
        from probes.script.without_model import without_model

        why = "the program did not import torch in this process, so no probe could fire"
        return without_model(self.request, self.progress, why) if place_in_launch()[1] > 1 else RunError(why)
