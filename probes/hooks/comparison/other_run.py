"""Comparison with the captures of another run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from probes.component import Transform
from probes.hooks.capture.recorder import Recorder
from probes.hooks.capture.run_state import CaptureClock
from probes.hooks.comparison.comparing import Comparing, Place
from probes.reader.series import Series
from probes.signature import Signature

CLOCK = ["epoch", "step", "microstep", "call", "backward", "rank"]


class OtherRun(Comparing):
    """Compares each value with the capture of another run with the same clock, phase and leaf; if that run has one leaf, with it.

    Args:
        captures: the series of the other run by (leaf, phase).
    """

    def __init__(
        self,
        recorder: Recorder,
        transforms: Sequence[Transform],
        dims: tuple[str, ...] | None,
        captures: Mapping[tuple[str, str], Series],
    ) -> None:
        super().__init__(recorder, transforms, dims)
        self.captures = captures
        self.known: dict[str, tuple[Series, dict[tuple[int, ...], int]] | None] = {}

    def meet(self, value: Tensor, signature: Signature, at: CaptureClock, place: Place) -> None:
        """Read the capture and compare with it."""
        self.compare(value, signature, self._capture(at, place), at, place)

    def _capture(self, at: CaptureClock, place: Place) -> Tensor | None:
        if at.phase not in self.known:
            self.known[at.phase] = self._placed(at.phase)
        known = self.known[at.phase]
        index = known[1].get((at.epoch, at.step, *place, self.recorder.state.rank)) if known is not None else None
        if known is None or index is None:
            return None
        return torch.from_numpy(known[0][index].value)

    def _placed(self, phase: str) -> tuple[Series, dict[tuple[int, ...], int]] | None:
        """The series of a phase, and the index of each clock in it."""
        of_phase = {leaf: one for (leaf, other), one in self.captures.items() if other == phase}
        series = of_phase.get(self.recorder.key.leaf) or (next(iter(of_phase.values())) if len(of_phase) == 1 else None)
        return None if series is None else (series, {row: index for index, row in enumerate(series.clocks[CLOCK].tolist())})
