"""Send small captures to Weights & Biases."""

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

STEP = "global_step"


class Wandb(TrackerSink):
    """Sends small captures to Weights & Biases as metrics named `probe/target/leaf/label`; the x axis is `global_step`.

    They go to a run with the ID of the probes run, next to that of the program, whose steps do not change. Run ID, spec digest, run
    directory, ledger head, captures roots and the command that verifies them are its config and summary; manifest, spec and ledger are an
    artifact. Sending is done in a separate process.
    """

    kind: Literal["wandb"] = "wandb"
    project: str = Field(default="probes", min_length=1, description="Name of the project.")
    mode: Literal["online", "offline"] = Field(default="online", description="`offline` writes into the folder `wandb`, for `wandb sync`.")
    dir: Annotated[str | None, Field(description="Where the folder `wandb` is; by default the working directory.")] = None

    def open(self, context: SinkContext) -> SinkSession:
        """Begin to send, to the run of an earlier attempt if there is one.

        Raises:
            MissingExtra: the package wandb is not installed.
        """
        return self.session(context, partial(_WandbRun, self))


class _WandbRun:
    """A run of Weights & Biases."""

    def __init__(self, sink: Wandb, context: SinkContext) -> None:
        package = import_optional("wandb", "wandb", "the sink `wandb`")
        self.package, self.tags = package, context.tags
        self.directory, self.artifacts = context.directory, sink.artifacts
        identity = context.tags.get("probes.run_id", "")
        settings = package.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True)
        self.rank = context.rank
        self.run: Any = package.init(
            project=sink.project,
            name=context.name or None,
            id=f"{identity}-{self.rank}" if self.rank else identity or None,
            mode=sink.mode,
            dir=sink.dir,
            config=dict(context.tags),
            resume="allow" if identity else None,
            reinit="create_new",
            settings=settings,
        )
        self.run.define_metric(STEP, hidden=True)
        self.run.define_metric("*", step_metric=STEP)

    def write(self, steps: Sequence[Sequence[Reading]]) -> None:
        """Send the metrics of some steps, each as one row."""
        for readings in steps:
            for step in step_metrics(readings, self.rank):
                self.run.log({STEP: step.global_step, "epoch": step.epoch, **step.values})

    def end(self, tags: Mapping[str, str]) -> None:
        """Send the tags and files, and end the run."""
        self.run.summary.update({**tags, **verify_command(self.tags, tags)})
        files = evidence(self.directory, self.artifacts)
        if files:
            artifact = self.package.Artifact(f"probes-{self.run.id}", type="probes-run", metadata={**self.tags, **tags})
            for path in files:
                artifact.add_file(str(path), name=path.name)
            self.run.log_artifact(artifact)
        self.run.finish()
