"""A number of each value of a series, and whether a condition of the spec holds for it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from math import copysign, inf, isfinite, isnan
from statistics import fmean, pstdev
from typing import NamedTuple

from torch import Tensor

from probes.component import Transform
from probes.hooks.capture.pipeline import LaterTransforms, Pipeline
from probes.spec.when import WINDOW, Condition
from probes.tensors import NotCapturable, components, unwrapped


class UnusualNumber(NamedTuple):
    """A number for which a condition holds.

    Attributes:
        number: the number.
        mean: mean of the numbers before; None if the bounds are absolute.
        deviation: standard deviations from it.
    """

    number: float
    mean: float | None = None
    deviation: float | None = None


class ConditionCheck:
    """Applies a condition to the values of one series.

    Args:
        condition: the condition.
        transforms: those of the probe, whose result is the number if the condition has no `of`.
        dims: names of the axes of the value.
    """

    def __init__(self, condition: Condition, transforms: Sequence[Transform], dims: tuple[str, ...] | None) -> None:
        self.condition = condition
        self.pipeline: Pipeline = Pipeline((condition.of,) if condition.of is not None else transforms, dims)
        window = condition.window or WINDOW
        self.numbers: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=window))

    def follow(self) -> LaterTransforms:
        """Compare results of a comparison from now on; return a function that receives names and labels of a result."""
        self.pipeline = later = LaterTransforms(self.pipeline.transforms)
        return later

    def find(self, tensor: Tensor, phase: str) -> UnusualNumber | None:
        """The number of a value, if the condition holds; with `deviations` not before the window is full.

        Args:
            tensor: any shape, dtype and device, owned by the model; only read.
            phase: its phase; each has a running mean of its own.

        Raises:
            ValueError: the value does not give one number.
            NotCapturable: it is in several pieces.
        """
        number = self.number(tensor)
        finding = self._deviation(number, self.numbers[phase]) if self.condition.deviations else UnusualNumber(number)
        if finding is None:
            return None
        return finding if self.condition.holds(number if finding.deviation is None else finding.deviation) else None

    def number(self, tensor: Tensor) -> float:
        """The number of a value."""
        tensor = unwrapped(tensor)
        found = components(tensor)
        if found is not None:
            raise NotCapturable("no data", f"a condition takes dense tensors, and {found}")
        value, _ = self.pipeline(tensor)
        if value.numel() != 1 or value.is_complex():
            kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            raise ValueError(f"the condition needs one real number, and has {kind}: add `of`, such as `of: {{kind: norm}}`")
        return float(value.item())

    def _deviation(self, number: float, before: deque[float]) -> UnusualNumber | None:
        """Compare the number with those before it, and add it to them; None while there are too few."""
        full = len(before) == before.maxlen
        mean, spread = (fmean(before), pstdev(before)) if full else (0.0, 0.0)
        if isfinite(number):
            before.append(number)
        return UnusualNumber(number, mean, deviation(number - mean, spread)) if full else None


def deviation(distance: float, spread: float) -> float:
    """A distance in standard deviations; infinite if all numbers before were equal and this one differs."""
    if spread > 0 or isnan(distance):
        return distance / spread if spread > 0 else distance
    return copysign(inf, distance) if distance else 0.0
