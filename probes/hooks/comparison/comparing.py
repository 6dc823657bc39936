"""Comparison before the recorder: finds the second tensor of each value, and gives the result to the recorder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from probes.component import CompareFn, TensorComparison, Transform
from probes.hooks.capture.accumulator import Accumulator, LastClock
from probes.hooks.capture.pipeline import MOST_SHAPES, LaterTransforms, Pipeline
from probes.hooks.capture.recorder import PLAIN, Recorder
from probes.hooks.capture.run_state import CaptureClock, StepState
from probes.hooks.capture.shard import WHOLE
from probes.signature import COMPLEX, FLOATS, Signature
from probes.tensors import DTYPE_NAMES, unwrapped

Place = tuple[int, int, int]
"""The place of a value in a step: microstep, call, backward."""


class Comparing:
    """Compares the values of one leaf with second tensors.

    Args:
        recorder: stores the results; it has the transforms after the comparison.
        transforms: all transforms of the probe.
        dims: names of the axes of the value.

    Attributes:
        before: the transforms before the comparison.
    """

    def __init__(self, recorder: Recorder, transforms: Sequence[Transform], dims: tuple[str, ...] | None) -> None:
        place = next(index for index, transform in enumerate(transforms) if isinstance(transform, TensorComparison))
        comparison = transforms[place]
        assert isinstance(comparison, TensorComparison)
        self.comparison = comparison
        self.before = Pipeline(transforms[:place], dims)
        recorder.parts.transforms = tuple(transforms)
        self.begun: dict[tuple[torch.dtype, torch.dtype, torch.Size], tuple[CompareFn, Signature]] = {}
        self.recorder = recorder
        self.later = [later_of(recorder, transforms[place + 1 :])]
        self.later += [check.follow() for check in recorder.checks]
        self.store = recorder.offer
        recorder.offer = self.offer

    def offer(self, tensor: Tensor, at: CaptureClock, call: int, backward: int) -> None:
        """Compare a value, and store the result if there is a second tensor.

        Args:
            tensor: any shape, dtype and device, owned by the model; no reference is kept.
            at: the clock of the value.
            call: call of the module within the outermost call.
            backward: how often this arming has fired before.
        """
        value, signature = self.prepared(tensor)
        self.meet(value, signature, at, (at.microstep, call, backward))

    def prepared(self, tensor: Tensor) -> tuple[Tensor, Signature]:
        """A value after the transforms before the comparison; it may share the memory of the tensor."""
        sharding = WHOLE
        if type(tensor) not in PLAIN:
            tensor, sharding = self.recorder.parts.split(tensor)
        self.recorder.parts.require_one(sharding)
        self.recorder.attrs.update(sharding)
        tensor = unwrapped(tensor)
        self.recorder.refuse_composite(tensor)
        return self.before(tensor)

    def meet(self, value: Tensor, signature: Signature, at: CaptureClock, place: Place) -> None:
        """Find the second tensor of a value."""
        raise NotImplementedError

    def end_step(self, step: StepState, *, keep: bool) -> None:
        """A step is over."""

    def compare(self, value: Tensor, signature: Signature, other: Tensor | None, at: CaptureClock, place: Place) -> None:
        """Store the result of a comparison; without a second tensor the value is counted as skipped."""
        if other is None:
            self.recorder.account.skip("no second tensor")
            return
        name = (value.dtype, other.dtype, value.shape)
        known = self.begun.get(name)
        if known is None:
            if len(self.begun) >= MOST_SHAPES:
                self.begun.clear()
            signature = signature.replace(dtype=DTYPE_NAMES[common_dtype(value, other)], shape=tuple(value.shape))
            known = self.begun[name] = (self.comparison.compare(signature), self.comparison.out(signature))
        other = other.to(value.device)
        if other.dtype is not value.dtype:
            dtype = common_dtype(value, other)
            value, other = value.to(dtype), other.to(dtype)
        with torch.autocast(value.device.type, enabled=False):
            result = known[0](value, other)
        for later in self.later:
            later.start_with(known[1])
        self.store(result, at, place[1], place[2])


def common_dtype(value: Tensor, other: Tensor) -> torch.dtype:
    """The dtype in which two tensors are compared: their own, or for floats of two dtypes the one that holds both exactly.

    Raises:
        ValueError: they are of two dtypes, and not both of real or both of complex floats.
    """
    if value.dtype is other.dtype:
        return value.dtype
    ours, theirs = DTYPE_NAMES[value.dtype], DTYPE_NAMES[other.dtype]
    if not any(ours in kind and theirs in kind for kind in (FLOATS, COMPLEX)):
        raise ValueError(
            f"the value is `{ours}`, and the tensor that it is compared with `{theirs}`: only floats of two dtypes are compared; "
            "put a transform before the comparison that gives both one dtype"
        )
    return torch.promote_types(value.dtype, other.dtype)


def later_of(recorder: Recorder, transforms: Sequence[Transform]) -> LaterTransforms:
    """The transforms that a recorder applies to the results; an accumulation merges them first."""
    if isinstance(recorder, Accumulator):
        recorder.before = later = LaterTransforms(())
    else:
        recorder.pipeline = later = LaterTransforms(transforms)
    return later


def clock_of(at: CaptureClock) -> LastClock:
    """A clock that does not change when the run continues."""
    return LastClock(at.epoch, at.phase, at.step, at.microstep, at.opened)
