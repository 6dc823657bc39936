"""Send small captures to trackio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from probes.component import Reading, SinkContext, SinkSession
from probes.optional_package import import_optional
from probes.sinks.kernels.metrics import step_metrics
from probes.sinks.kernels.run_evidence import evidence, verify_command
from probes.sinks.kernels.tracker_sink import TrackerSink


class Trackio(TrackerSink):
    """Sends small captures to trackio as metrics named `probe/target/leaf/label`, with `global_step` as step.

    They go to a run with the ID of the probes run as its name, into the local database of trackio or a Space. Run ID, spec digest and run
    directory are its config. Manifest, spec and ledger are an artifact, whose metadata has the ledger head, the captures roots and the
    command that verifies them. Sending is done in a separate process.
    """

    kind: Literal["trackio"] = "trackio"
    project: str = Field(default="probes", min_length=1, description="Name of the project.")
    space: Annotated[str | None, Field(description="Space of Hugging Face to send to; by default the database of this machine.")] = None

    def open(self, context: SinkContext) -> SinkSession:
        """Begin to send, to the run of an earlier attempt if there is one.

        Raises:
            MissingExtra: the package trackio is not installed.
        """
        return self.session(context, partial(_TrackioRun, self))


class _TrackioRun:
    """A run of trackio."""

    def __init__(self, sink: Trackio, context: SinkContext) -> None:
        self.package = import_optional("trackio", "trackio", "the sink `trackio`")
        self.rank, self.tags = context.rank, context.tags
        self.directory, self.artifacts = context.directory, sink.artifacts
        identity = context.tags.get("probes.run_id", "") or context.name or "probes"
        self.name = f"{identity}-{self.rank}" if self.rank else identity
        self.run: Any = self.package.init(
            project=sink.project,
            name=self.name,
            group=context.name or None,
            config=dict(context.tags),
            space_id=sink.space,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def write(self, steps: Sequence[Sequence[Reading]]) -> None:
        """Send the metrics of some steps, each as one row."""
        for readings in steps:
            for step in step_metrics(readings, self.rank):
                self.run.log({"epoch": step.epoch, **step.values}, step=step.global_step)

    def end(self, tags: Mapping[str, str]) -> None:
        """Send the tags and files, and end the run."""
        files = evidence(self.directory, self.artifacts)
        if files:
            known = {**self.tags, **tags, **verify_command(self.tags, tags)}
            artifact = self.package.Artifact(f"probes-{self.name}", type="probes-run", metadata=known)
            for path in files:
                artifact.add_file(str(path))
            self.run.log_artifact(artifact)
        self.run.finish()
