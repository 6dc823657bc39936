"""Loss scales of a program: those of GradScalers are stored, those of other libraries are reported as unknown."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from torch.amp.grad_scaler import GradScaler

from probes.component import Transform
from probes.hooks.capture.loss_scale import LossScales
from probes.tensors import leaves

SCALED = ("abs", "cast", "einops", "norm", "project", "quantile", "reduce", "sample", "select", "topk")  # with few exceptions
UNSCALED = {"order": ("l0",), "keep": ("indices",), "reduction": ("prod",), "op": ("any", "all")}  # those
OTHERS = ("deepspeed", "apex", "colossalai", "fairscale", "megatron")  # libraries that may scale the loss by code of their own


def watch_losses(scales: LossScales, scaler: GradScaler, losses: Any) -> None:
    """Observe the backward of each loss that a scaler has scaled.

    Args:
        scales: notices it.
        scaler: the scaler.
        losses: what it returned: a tensor, or several in a container.
    """
    scale = scaler._scale
    if scale is None:
        return
    scale = scale.detach().clone()  # a scaler updates its own in place
    for _, loss in leaves(losses, "loss"):
        scales.watch(loss, scale)


def scale_lines(scales: LossScales, *, gradients: bool) -> Iterator[str]:
    """Lines for the summary.

    Args:
        scales: of the run.
        gradients: whether the spec captures gradients.
    """
    for probe, first in scales.first.items():
        one, other = first.item(), scales.last[probe].item()
        by = f"{one:g}" if one == other else f"{one:g} at first, {other:g} at last"
        yield f"the gradients of `{probe}` are stored as the loss scale made them ({by}); `.unscaled()` divides by it"
    found = [name for name in OTHERS if name in sys.modules] if gradients and not scales.first else []
    for name in found:
        yield f"`{name}` was imported: if it scales the loss, gradients are stored scaled, and the scale is not known"


def nonlinear(transforms: Sequence[Transform]) -> list[str]:
    """The kinds of transforms whose result does not scale with their input."""
    return [transform.kind for transform in transforms if not _scales(transform)]


def _scales(transform: Transform) -> bool:
    options = transform.model_dump()
    return transform.kind in SCALED and not any(options.get(name) in values for name, values in UNSCALED.items())
