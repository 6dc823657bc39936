"""Comparison with the value of the previous step, or of the first step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from torch import Tensor

from probes.component import Transform
from probes.hooks.capture.recorder import Recorder
from probes.hooks.capture.run_state import CaptureClock, StepState
from probes.hooks.comparison.comparing import Comparing, Place
from probes.signature import Signature

Known = dict[tuple[str, Place], Tensor]
"""Values by phase and place."""


class OtherStep(Comparing):
    """Compares each value with that of the same phase, microstep, call and backward in another step that was due and committed.

    Args:
        first: whether it is the first such step, rather than the one before.
    """

    def __init__(self, recorder: Recorder, transforms: Sequence[Transform], dims: tuple[str, ...] | None, *, first: bool) -> None:
        super().__init__(recorder, transforms, dims)
        self.first = first
        self.past: Known = {}
        self.open: dict[StepState, Known] = defaultdict(dict)

    def meet(self, value: Tensor, signature: Signature, at: CaptureClock, place: Place) -> None:
        """Compare with the stored value, and keep a copy of this one for later steps."""
        name = (at.phase, place)
        other = self.past.get(name)
        if (other is None or not self.first) and not at.opened.dropped:
            kept = self.past if at.opened.over else self.open[at.opened]
            kept[name] = value.clone()
        self.compare(value, signature, other, at, place)

    def end_step(self, step: StepState, *, keep: bool) -> None:
        """Keep the values of a step that was committed."""
        values = self.open.pop(step, {})
        if keep and self.first:
            self.past = {**values, **self.past}
        elif keep:
            self.past.update(values)
