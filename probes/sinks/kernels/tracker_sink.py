"""What the sinks of trackers have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from probes.component import Sink
from probes.sinks.kernels.run_evidence import ABOUT, Artifacts


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
