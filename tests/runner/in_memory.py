"""A run without a directory, for tests of what is captured and when: a tenth of the time of one that is sealed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from probes.errors import RunError
from probes.hooks.capture.model_copies import clean_copies
from probes.plan import resolve
from probes.run_directory.resume import PreviousAttempts
from probes.runner.engine import Engine
from probes.runner.look.look import Look
from probes.runner.look.memory_files import MemoryFiles, MemorySource
from probes.runner.program_events import ProgramEvents
from probes.runner.run_loops import RunLoops
from probes.runner.summary import unmet


class MemoryRun(RunLoops):
    """One epoch of a run.

    Attributes:
        found: the series, once the run is over.
        closing: what a file would say of the epoch.
    """

    found: Look

    def __init__(self, engine: Engine, files: MemoryFiles) -> None:
        super().__init__(engine, ProgramEvents(engine))
        self.files = files

    @property
    def closing(self) -> dict[str, Any]:
        return self.files.closing

    def set(self, **given: Any) -> None:
        """Give other tensors to edits."""
        self.engine.set_given(given)

    def account(self, probe: str, target: str, value: str) -> Mapping[str, Any]:
        """The counters of a binding."""
        rows = self.closing["accounts"]
        return next(one for one in rows if (one["probe"], one["target"], one["value"]) == (probe, target, value))


@contextmanager
def in_memory(model: nn.Module, spec: Any, given: Mapping[str, Any] | None = None) -> Iterator[MemoryRun]:
    """Attach a spec to a model; afterwards the captures are in `found`, and a run that lacks values raises RunError."""
    plan, files = resolve(spec, model, given or {}), MemoryFiles()
    engine = Engine(plan, files, PreviousAttempts(), automatic=False, rank=0)
    engine.writer.disk_space.asked = True
    run = MemoryRun(engine, files)
    engine.live.stand()
    clean_copies.start()
    run.events.start()
    try:
        yield run
    finally:
        run.events.stop()
        engine.hear(engine.clock.epoch_ends)
        if engine.writer.sinks is not None:
            engine.writer.sinks.close()
        engine.live.remove()
        clean_copies.stop()
        run.found = Look(MemorySource(files.ended, 0), None, None)
    if engine.failures.first is not None:
        raise engine.failures.first
    problems = unmet(plan, engine.writer.accounts, engine.clock.totals)
    if problems:
        raise RunError("\n".join(str(problem) for problem in problems))
