"""Supplies the second tensors of each binding with `against`."""

from __future__ import annotations

from collections.abc import Sequence

from probes.component import Accumulation, TensorComparison, Transform
from probes.hooks.capture.recorder import Recorder
from probes.hooks.capture.run_state import StepState
from probes.hooks.comparison.comparing import Comparing
from probes.hooks.comparison.other_run import OtherRun
from probes.hooks.comparison.other_series import OtherSeries, SharedValues
from probes.hooks.comparison.other_step import OtherStep
from probes.plan import Binding


class SecondTensors:
    """The comparisons of a run.

    Args:
        bindings: those of the plan.

    Attributes:
        all: the comparisons.
        shared: the values that are shared, by the index of their binding.
    """

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self.all: list[Comparing] = []
        self.shared: dict[int, SharedValues] = {}
        wanted = {binding.second.series for binding in bindings if binding.second is not None and binding.second.series is not None}
        self.sources: dict[tuple[str, str, str], int] = {}
        for binding in bindings if wanted else ():
            name = (binding.name, binding.target, binding.seen)
            if name in wanted and name not in self.sources:
                self.sources[name] = binding.index
                self.shared[binding.index] = SharedValues()

    def later(self, binding: Binding) -> tuple[Transform, ...]:
        """The transforms after the comparison of a binding; including it, if it accumulates."""
        transforms = binding.probe.transforms
        place = next(index for index, one in enumerate(transforms) if isinstance(one, TensorComparison))
        return transforms[place if isinstance(transforms[place], Accumulation) else place + 1 :]

    def add(self, recorder: Recorder, binding: Binding) -> None:
        """Compare the values that a recorder is offered, and have it store the results.

        Args:
            recorder: has the transforms after the comparison.
            binding: its binding.
        """
        self.all.append(self._comparing(recorder, binding))

    def share(self, recorder: Recorder, index: int) -> None:
        """Keep the values that the recorder of a binding is offered, if others are compared with them."""
        if index in self.shared:
            self.shared[index].share(recorder)

    def end_step(self, step: StepState, *, keep: bool) -> None:
        """A step is over, and its captures are about to be committed or dropped."""
        for one in self.all:
            one.end_step(step, keep=keep)
        for shared in self.shared.values():
            shared.given.pop(step, None)

    def _comparing(self, recorder: Recorder, binding: Binding) -> Comparing:
        second, dims, transforms = binding.second, binding.probe.dims, binding.probe.transforms
        if second is None:
            raise AssertionError("BUG: a comparison without a second tensor")
        if second.series is not None:
            return OtherSeries(recorder, transforms, dims, self.shared[self.sources[second.series]])
        if second.run is None:
            return OtherStep(recorder, transforms, dims, first=second.step == "first")
        of_target = [one for one in second.run.series if (one.key.probe, one.key.target) == (second.probe, second.target)]
        return OtherRun(recorder, transforms, dims, {(one.key.leaf, one.key.phase): one for one in of_target})
