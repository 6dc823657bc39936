"""Send small captures to Aim."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

from pydantic import Field

from probes.component import Reading, SinkContext, SinkSession
from probes.optional_package import import_optional
from probes.sinks.kernels.metrics import step_metrics
from probes.sinks.kernels.run_evidence import evidence, verify_command
from probes.sinks.kernels.run_file import open_to_append
from probes.sinks.kernels.tracker_sink import TrackerSink

HEAD = "# The last line is the hash of the run in Aim.\n"


class Aim(TrackerSink):
    """Sends small captures to Aim as metrics named `probe/target/leaf/label`, with `global_step` as step, and with the epoch.

    They go to a run with the name of the spec in a repository of Aim. Run ID, spec digest, run directory, ledger head, captures roots and
    the command that verifies them are its parameter `probes`; manifest, spec and ledger are artifacts, in the folder `probes` of the
    repository if that is a folder. A file in the run directory has the hash of the run in Aim. Sending is done in a separate process.
    """

    kind: Literal["aim"] = "aim"
    repo: Annotated[
        str | None, Field(description="Folder that has the repository `.aim`, or `aim://HOST:PORT`; by default that of Aim.")
    ] = None
    experiment: str = Field(default="probes", min_length=1, description="Name of the experiment.")

    def files(self) -> tuple[str, ...]:
        """One file, whose last line is the hash of the run in Aim, since Aim gives it; a resumed run continues it."""
        return ("aim.txt",)

    def open(self, context: SinkContext) -> SinkSession:
        """Begin to send, to the run of an earlier attempt if there is one.

        Raises:
            MissingExtra: the package aim is not installed.
            OSError: the file cannot be opened, is a link, or is not a plain file.
        """
        with _appended(context.files[0]) as file:
            if not file.tell():
                file.write(HEAD)
        return self.session(context, partial(_AimRun, self))


class _AimRun:
    """A run of Aim."""

    def __init__(self, sink: Aim, context: SinkContext) -> None:
        package = import_optional("aim", "aim", "the sink `aim`")
        self.rank, self.tags = context.rank, dict(context.tags)
        self.directory, self.artifacts = context.directory, sink.artifacts
        self.run: Any = _begun(package, sink, context.files[0])
        self.run.name = context.name or "probes"
        self.run["probes"] = self.tags

    def write(self, steps: Sequence[Sequence[Reading]]) -> None:
        """Send the metrics of some steps."""
        for readings in steps:
            for step in step_metrics(readings, self.rank, plain=False):
                self.run.track(step.values, step=step.global_step, epoch=step.epoch)

    def end(self, tags: Mapping[str, str]) -> None:
        """Send the tags and files, and end the run."""
        self.run["probes"] = {**self.tags, **tags, **verify_command(self.tags, tags)}
        files = evidence(self.directory, self.artifacts)
        if files and "://" not in self.run.repo.path:
            self.run.set_artifacts_uri((Path(self.run.repo.path).absolute().parent / "probes").as_uri())
            for path in files:
                self.run.log_artifact(str(path), name=path.name, block=True)
        self.run.close()


def _begun(package: Any, sink: Aim, place: Path) -> Any:
    """The run of an earlier attempt, if the repository still has it, or a new one."""
    options: dict[str, Any] = {"system_tracking_interval": None, "capture_terminal_logs": False, "log_system_params": False}
    known = place.read_text(encoding="utf-8", errors="replace").removeprefix(HEAD).split()
    if known:
        with suppress(RuntimeError):  # Aim's exception if the repository has no such run
            return package.Run(run_hash=known[-1], repo=sink.repo, force_resume=True, **options)
    run = package.Run(repo=sink.repo, experiment=sink.experiment, **options)
    with _appended(place) as file:
        file.write(f"{run.hash}\n")
    return run


def _appended(place: Path) -> TextIO:
    return os.fdopen(open_to_append(place, lambda handle, size: size), "a", encoding="utf-8")
