"""The common part of the sinks of trackers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import Field

from probes.component import Sink, SinkContext, SinkSession
from probes.optional_package import require_package
from probes.sinks.kernels.background import BackgroundSession, Tracker
from probes.sinks.kernels.run_evidence import ABOUT, Artifacts
from probes.sinks.kernels.tracker_process import TrackerProcess


class TrackerSink(Sink):
    """Sends small captures to a tracker of experiments."""

    max_elements: int = Field(
        default=64, ge=1, le=4096, description="Largest number of elements of a capture; a larger capture is refused."
    )
    artifacts: Annotated[Artifacts, Field(description=ABOUT)] = "proof"
    wait: Annotated[float, Field(gt=0, description="Seconds to wait at the end of the run for what is still to be sent.")] = 30.0

    def most_elements(self) -> int:
        """`max_elements`."""
        return self.max_elements

    def session(self, context: SinkContext, connect: Callable[[SinkContext], Tracker]) -> SinkSession:
        """Begin to send from a separate process.

        Args:
            context: of the run.
            connect: makes the tracker; called in that process, so it can be pickled.

        Raises:
            MissingExtra: the package of the tracker, which has the name of the kind, is not installed.
            OSError: the process cannot be started.
        """
        require_package(self.kind, self.kind, f"the sink `{self.kind}`")
        process = TrackerProcess(partial(connect, replace(context, closing=dict)))
        return BackgroundSession(lambda: process, context.closing, self.wait, process.give_up)
