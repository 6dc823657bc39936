"""Capture in the processes that a script starts for its training: by `torch.multiprocessing.spawn`, or as a `Process` with a rank."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from probes.errors import RunError
from probes.provenance.child_processes import process_starts
from probes.run_directory.launch.launcher import BY_SCRIPT
from probes.script.program import join_threads
from probes.script.progress import Progress
from probes.script.run_request import RunRequest

SPAWN = "torch.multiprocessing.spawn"
MAIN = ("__main__", "__mp_main__")
JOINED = ".joined"  # ends the name of a file that exists if a `Process` has captured


class SpawnedChildren:
    """Adds children of `torch.multiprocessing.spawn`, which `ddp_spawn` and notebook launchers also use, to the run.

    A `Process` whose target is a function of the script joins if it has a rank when it calls the model.

    Args:
        request: what the user asks of the run.
        notice: called once, with what to say.
        leave: called in a forked child, which shall not continue watching as its parent did.
        watch: makes what watches a process of the program, from a request, a progress and the index of the child.
        has_run: whether this process has a run; its children are then not ranks of it.
    """

    def __init__(
        self,
        request: RunRequest,
        notice: Callable[[str], None],
        leave: Callable[[], None],
        watch: Callable[..., Any],
        has_run: Callable[[], bool],
    ) -> None:
        self.request = request
        self.has_run = has_run
        self.watch = watch
        self.notice = notice
        self.leave = leave
        self.spawned = 0
        self._captured = False
        self._noticed = False
        self._pid = os.getpid()
        self._heard = False
        self._failures = ""

    def start(self) -> None:
        """Begin to watch."""
        process_starts.add(self._starts)
        self._heard = True

    def stop(self) -> None:
        """Stop watching."""
        if self._heard:
            process_starts.remove(self._starts)
            self._heard = False

    @property
    def joined(self) -> bool:
        """Whether children may have captured; whether a `Process` has is known after `failure`."""
        return bool(self.spawned) or self._captured

    def failure(self) -> RunError | None:
        """The problems of the children's runs, after the children have ended."""
        if not self._failures:
            return None
        path = Path(self._failures)
        lines = list(dict.fromkeys(path.read_text("utf-8", "replace").splitlines())) if path.exists() else []
        path.unlink(missing_ok=True)
        note = Path(self._failures + JOINED)
        self._captured = note.exists()
        note.unlink(missing_ok=True)
        return RunError("\n".join(lines)) if lines else None

    def _starts(self, process: BaseProcess) -> AbstractContextManager[None]:
        try:
            self._bring_in(process)
        except OSError as error:
            self._say_once(f"the processes that the script starts are not captured: no temporary file can be made for them: {error}")
        return nullcontext()

    def _bring_in(self, process: BaseProcess) -> None:
        target = getattr(process, "_target", None)
        arguments: tuple[Any, ...] = getattr(process, "_args", ())
        if os.getpid() != self._pid:
            return
        if getattr(target, "__module__", "") in MAIN and target is not None and not self.has_run():
            wrapped = CapturedProcess(target, self.request, self._room(), self.watch, self.leave, process.name)
            if getattr(process, "_start_method", None) == "fork" or _is_picklable(wrapped):
                process._target = wrapped  # type: ignore[attr-defined]  # multiprocessing keeps it there in every release
        if getattr(target, "__module__", "") != SPAWN or len(arguments) < 2:
            return
        if self.has_run():
            self._say_once(
                "the processes that the script starts with `torch.multiprocessing.spawn` from now on are not captured, because "
                "this process has called a model that is"
            )
            return
        child = CapturedChild(arguments[0], self.request, self._room(), self.watch, self.leave)
        forked = getattr(process, "_start_method", None) == "fork"
        if forked or _is_picklable(child):
            process._args = (child, *arguments[1:])  # type: ignore[attr-defined]  # multiprocessing keeps it there in every release
            self.spawned += 1
        else:
            self._say_once(
                "the script starts processes with `torch.multiprocessing.spawn`; what the spec needs cannot be sent to them, so "
                "`probes run` does not capture what they do: call `probes.attach` in the function that they run, or start the script with "
                "`torchrun --nproc-per-node N -m probes run SPEC SCRIPT`"
            )

    def _room(self) -> str:
        """The file for failures of children."""
        if not self._failures:
            handle, self._failures = tempfile.mkstemp(prefix="probes-")
            os.close(handle)
        return self._failures

    def _say_once(self, text: str) -> None:
        if not self._noticed:
            self._noticed = True
            self.notice(text)


def _is_picklable(child: CapturedChild) -> bool:
    try:
        pickle.dumps(child)
    except Exception:  # a user's class may raise anything here
        return False
    return True


class ChildName(NamedTuple):
    """A process that the script started.

    Attributes:
        text: how messages call it.
        is_first: whether it is the one that is captured if none of them has a rank.
    """

    text: str
    is_first: bool


class CapturedChild:
    """The main function of a child, with probes around the function of the script.

    Args:
        function: what the script gave: it takes the index of the child and further arguments.
        request: what the user asks of the run.
        failures: a file that takes what is to be said against the run.
        watch: makes what watches a process of the program.
        leave: stops what a forked child has inherited.
    """

    def __init__(
        self,
        function: Callable[..., object],
        request: RunRequest,
        failures: str,
        watch: Callable[..., Any],
        leave: Callable[[], None] | None,
    ) -> None:
        self.function = function
        self.watch = watch
        self.request = request
        self.failures = failures
        self.leave = leave

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "leave": None}

    def __call__(self, index: int, *arguments: Any) -> None:
        """Run the function; an error of the program propagates unchanged."""
        self._run(ChildName(f"process {index} of `torch.multiprocessing.spawn`", index == 0), index, *arguments)

    def _run(self, child: ChildName, *arguments: Any, **named: Any) -> None:
        os.environ[BY_SCRIPT] = "1"
        if self.leave is not None:
            self.leave()
        watch = self.watch(self.request, Progress(), child=child)
        watch.start()
        try:
            self.function(*arguments, **named)
            join_threads()  # they may train
        except BaseException as error:  # any end of the child's function; raised again
            self._end(watch, error)
            raise
        self._end(watch, None)

    def _end(self, watch: Any, error: BaseException | None) -> None:
        watch.stop()
        failure = watch.finish(error)
        if failure is not None and error is None and watch.has_run():
            with suppress(OSError), Path(self.failures).open("a", encoding="utf-8") as file:  # a full disk ends no training
                file.write(f"{failure}\n")


class CapturedProcess(CapturedChild):
    """The target of a `Process`, with probes around the function of the script; it leaves a file if it has captured.

    Args:
        function: the target.
        request: what the user asks of the run.
        failures: a file that takes what is to be said against the run.
        watch: makes what watches a process of the program.
        leave: stops what a forked child has inherited.
        name: of the process.
    """

    def __init__(
        self,
        function: Callable[..., object],
        request: RunRequest,
        failures: str,
        watch: Callable[..., Any],
        leave: Callable[[], None] | None,
        name: str,
    ) -> None:
        super().__init__(function, request, failures, watch, leave)
        self.name = name

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Run the function; an error of the program propagates unchanged."""
        self._run(ChildName(f"process `{self.name}`", is_first=False), *arguments, **named)

    def _end(self, watch: Any, error: BaseException | None) -> None:
        if watch.has_run():
            with suppress(OSError):
                Path(self.failures + JOINED).touch()
        super()._end(watch, error)
