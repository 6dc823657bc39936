"""Send small captures to MLflow."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from probes.component import Reading, SinkContext, SinkSession
from probes.optional_package import import_optional
from probes.sinks.kernels.metrics import step_metrics
from probes.sinks.kernels.run_evidence import evidence, verify_command
from probes.sinks.kernels.tracker_sink import TrackerSink

MOST_METRICS = 1000  # that the server takes at once


class Mlflow(TrackerSink):
    """Sends small captures to MLflow as metrics named `probe/target/leaf/label`, with `global_step` as step.

    They go to the active run of the program, if there is one, else to a run with the name of the spec. Run ID, spec digest, run
    directory, ledger head, captures roots and the command that verifies them are tags; manifest, spec and ledger are artifacts. Sending
    is done in a separate process; a server that fails or is slow does not delay the training.
    """

    kind: Literal["mlflow"] = "mlflow"
    uri: Annotated[str | None, Field(description="Address of the server or database; by default that of MLflow.")] = None
    experiment: str = Field(default="probes", description="Name of the experiment, which is created if it does not exist.")

    def open(self, context: SinkContext) -> SinkSession:
        """Begin to send, to the run of an earlier attempt if there is one.

        Raises:
            MissingExtra: the package mlflow is not installed.
        """
        active, uri = None, self.uri
        if (package := sys.modules.get("mlflow")) is not None:  # read in the thread of the program, to which it belongs
            uri = uri or package.get_tracking_uri()
            run = package.active_run() if context.rank == 0 else None
            active = None if run is None else run.info.run_id
        sink = self.model_copy(update={"uri": uri})
        return self.session(context, partial(_MlflowRun, sink, active))


class _MlflowRun:
    """A run of MLflow, through a separate client, which does not affect the program's use of `mlflow`."""

    def __init__(self, sink: Mlflow, active: str | None, context: SinkContext) -> None:
        self.package = import_optional("mlflow", "mlflow", "the sink `mlflow`")
        self.client: Any = self.package.MlflowClient(tracking_uri=sink.uri)
        self.rank = context.rank
        self.tags = context.tags
        self.directory, self.artifacts = context.directory, sink.artifacts
        self.own = active is None
        self.run = active or self._begun(sink.experiment, context)
        self._tag(context.tags)

    def _begun(self, experiment: str, context: SinkContext) -> str:
        """The ID of the run of an earlier attempt, or of a new one."""
        found = self.client.get_experiment_by_name(experiment)
        place = found.experiment_id if found is not None else self.client.create_experiment(experiment)
        tags = {**context.tags, "probes.rank": str(context.rank)}
        if tags.get("probes.run_id"):
            wanted = " and ".join(f"tags.`{name}` = '{tags[name]}'" for name in ("probes.run_id", "probes.rank"))
            for run in self.client.search_runs([place], wanted, max_results=1):
                self.client.update_run(run.info.run_id, status="RUNNING")
                return str(run.info.run_id)
        return str(self.client.create_run(place, tags=tags, run_name=context.name or "probes").info.run_id)

    def write(self, steps: Sequence[Sequence[Reading]]) -> None:
        """Send the metrics of some steps, as many at once as the server takes."""
        now, entities = int(time.time() * 1000), self.package.entities
        found = [step for readings in steps for step in step_metrics(readings, self.rank)]
        metrics = [entities.Metric(name, value, now, step.global_step) for step in found for name, value in step.values.items()]
        for first in range(0, len(metrics), MOST_METRICS):
            self.client.log_batch(self.run, metrics=metrics[first : first + MOST_METRICS])

    def end(self, tags: Mapping[str, str]) -> None:
        """Send the tags and files, and end the run unless it is that of the program."""
        self._tag({**tags, **verify_command(self.tags, tags)})
        for path in evidence(self.directory, self.artifacts):
            self.client.log_artifact(self.run, str(path), artifact_path=f"probes/rank-{self.rank}" if self.rank else "probes")
        if self.own:
            self.client.set_terminated(self.run)

    def _tag(self, tags: Mapping[str, str]) -> None:
        self.client.log_batch(self.run, tags=[self.package.entities.RunTag(name, value) for name, value in tags.items()])
