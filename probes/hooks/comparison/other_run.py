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

    If both runs recorded sample ids, the steps must have the same samples in the same order.

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
        self.samples: tuple[tuple[int, str], dict[int, list[int | str]]] | None = None  # of one epoch and phase

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
        self._require_samples(known[0], at)
        return torch.from_numpy(known[0][index].value)

    def _require_samples(self, series: Series, at: CaptureClock) -> None:
        """Refuse to compare rows of different samples.

        Raises:
            ValueError: the step has other samples in the other run, or in another order.
        """
        ours = self.recorder.state.samples(at.phase, at.step)
        if not ours:
            return
        if self.samples is None or self.samples[0] != (at.epoch, at.phase):
            self.samples = (at.epoch, at.phase), series.step_ids(at.epoch, self.recorder.state.rank)
        theirs = self.samples[1].get(at.step)
        if theirs is None or list(ours) == theirs[: len(ours)]:  # with accumulation, the ids of later batches are not known yet
            return
        row = next((row for row, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other), min(len(ours), len(theirs)))
        shown = (repr(ids[row]) if row < len(ids) else "none" for ids in (ours, theirs))
        raise ValueError(
            "the step has other samples than in the other run: at row {} the sample id is {} here and {} there; ".format(row, *shown)
            + "give the samples in the same order in both runs"
        )

    def _placed(self, phase: str) -> tuple[Series, dict[tuple[int, ...], int]] | None:
        """The series of a phase, and the index of each clock in it."""
        of_phase = {leaf: one for (leaf, other), one in self.captures.items() if other == phase}
        series = of_phase.get(self.recorder.key.leaf) or (next(iter(of_phase.values())) if len(of_phase) == 1 else None)
        return None if series is None else (series, {row: index for index, row in enumerate(series.clocks[CLOCK].tolist())})
