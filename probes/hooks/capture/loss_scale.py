"""The loss scale of the running backward, stored with each gradient that it scales."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from probes.hooks.capture.recorder import Recorder
from probes.hooks.capture.run_state import CaptureClock, StepState
from probes.hooks.capture.tracing import runs_eagerly
from probes.tensors import graph_task

MakeScaleRecorder = Callable[[str], Recorder]


class LossScales:
    """The loss scales of a run: the scale of the running backward, and a series of scales for each probe.

    A scale is stored once for each probe, step and outermost call: every gradient of that call has it.

    Args:
        make: makes the recorder of a probe's scales.

    Attributes:
        first: the scale that each probe stored first.
        last: the one that it stored last.
    """

    def __init__(self, make: MakeScaleRecorder) -> None:
        self.make = make
        self.first: dict[str, Tensor] = {}
        self.last: dict[str, Tensor] = {}
        self._task = -1
        self._scale: Tensor | None = None
        self._recorders: dict[str, Recorder] = {}
        self._stored: set[tuple[str, StepState, int]] = set()

    def watch(self, loss: Tensor, scale: Tensor) -> None:
        """Observe the backward of a scaled loss.

        Args:
            loss: any shape, as the program gets it from its scaler.
            scale: (), on any device; not written to any more.
        """
        if loss.grad_fn is not None:
            loss.register_hook(_BackwardBegins(self, scale))  # type: ignore[no-untyped-call]  # untyped in torch

    def begin(self, scale: Tensor) -> None:
        """The backward of a scaled loss begins."""
        self._task, self._scale = graph_task(), scale

    def note(self, probe: str, at: CaptureClock) -> None:
        """Store the scale of the running backward with a captured gradient.

        Args:
            probe: whose gradient it is.
            at: its clock.
        """
        scale, place = self._scale, (probe, at.opened, at.microstep)
        if scale is None or place in self._stored or self._task != graph_task():
            return
        self._stored.add(place)
        self.first.setdefault(probe, scale)
        self.last[probe] = scale
        if probe not in self._recorders:
            self._recorders[probe] = self.make(probe)
        self._recorders[probe].put(scale, at, 0, 0)

    def end_step(self) -> None:
        """Forget where scales were stored."""
        self._stored.clear()


class _BackwardBegins:
    """A tensor hook on a scaled loss; it changes nothing."""

    __slots__ = ("scale", "scales")

    def __init__(self, scales: LossScales, scale: Tensor) -> None:
        self.scales = scales
        self.scale = scale

    @runs_eagerly
    def __call__(self, grad: Tensor) -> None:
        self.scales.begin(self.scale)
