"""Loss scales: those of GradScalers are stored with the gradients that they scale, those of other libraries are reported as unknown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from probes.component import Transform
from probes.hooks.capture.recorder import Recorder
from probes.hooks.capture.run_state import CaptureClock, StepState
from probes.hooks.capture.tracing import runs_eagerly
from probes.tensors import graph_task, leaves

SCALED = ("abs", "cast", "einops", "norm", "project", "quantile", "reduce", "sample", "select", "topk")  # with few exceptions
UNSCALED = {"order": ("l0",), "keep": ("indices",), "reduction": ("prod",), "op": ("any", "all")}  # those
OTHERS = ("deepspeed", "apex", "colossalai", "fairscale", "megatron")  # libraries that may scale the loss by code of their own

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

    def watch(self, scaler: GradScaler, losses: Any) -> None:
        """Observe the backward of each loss that a scaler has scaled.

        Args:
            scaler: the scaler.
            losses: what it returned: a tensor, or several in a container.
        """
        if scaler._scale is None:
            return
        scale = scaler._scale.detach().clone()  # a scaler updates its own in place
        for _, loss in leaves(losses, "loss"):
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


def scale_lines(scales: LossScales) -> Iterator[str]:
    """Lines for the summary of a run that captures gradients."""
    for probe, first in scales.first.items():
        one, other = first.item(), scales.last[probe].item()
        by = f"{one:g}" if one == other else f"{one:g} at first, {other:g} at last"
        yield f"the gradients of `{probe}` are stored as the loss scale made them ({by}); `.unscaled()` divides by it"
    for name in [one for one in OTHERS if one in sys.modules and not scales.first]:
        yield f"`{name}` was imported: if it scales the loss, gradients are stored scaled, and the scale is not known"


def nonlinear(transforms: Sequence[Transform]) -> list[str]:
    """The kinds of transforms whose result does not scale with their input."""
    return [transform.kind for transform in transforms if not _scales(transform)]


def _scales(transform: Transform) -> bool:
    options = transform.model_dump()
    return transform.kind in SCALED and not any(options.get(name) in values for name, values in UNSCALED.items())
