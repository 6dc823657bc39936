"""What is merged over an epoch: told of the ends of steps and epochs."""

from __future__ import annotations

from collections.abc import Iterator

from probes.component import Accumulation
from probes.hooks.capture.accumulator import Accumulator
from probes.hooks.capture.tap import Tap
from probes.runner.live import Live


class Accumulations:
    """The taps of a run whose captures are merged over each epoch.

    Attributes:
        taps: those taps; most runs have none.
    """

    def __init__(self, live: Live) -> None:
        self.live = live
        bound = zip(live.plan.bindings, live.taps, strict=True)
        self.taps = [tap for binding, tap in bound if any(isinstance(one, Accumulation) for one in binding.probe.transforms)]

    def _all(self) -> Iterator[tuple[Tap, Accumulator]]:
        return ((tap, one) for tap in self.taps if not tap.broken for one in tap.recorders.values() if isinstance(one, Accumulator))

    def end_step(self, phase: str, step: int, keep: bool) -> None:
        """A step was committed, or dropped."""
        for tap, one in self._all():
            try:
                one.end_step(phase, step, keep)
            except Exception as error:  # as in a hook: a failing probe must not change training
                self.live.on_failure(tap, error)

    def end_epoch(self) -> None:
        """The epoch is over: hand what was merged to the journal, whose next commit makes it safe."""
        for tap, one in self._all():
            try:
                one.end_epoch()
            except Exception as error:  # as in a hook
                self.live.on_failure(tap, error)
