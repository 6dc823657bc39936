"""Comparison with the value of another series in the same step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from probes.component import Transform
from probes.hooks.capture.accumulator import LastClock
from probes.hooks.capture.recorder import Recorder
from probes.hooks.capture.run_state import CaptureClock, StepState
from probes.hooks.comparison.comparing import Comparing, Place, clock_of
from probes.signature import Signature


class WaitingValue(NamedTuple):
    """A value whose second tensor has not come yet; it is a copy."""

    value: Tensor
    signature: Signature
    at: LastClock
    place: Place


class SharedValues:
    """The values of a binding in each open step, for bindings that compare with them."""

    def __init__(self) -> None:
        self.given: dict[StepState, dict[str, dict[Place, Tensor]]] = defaultdict(dict)

    def share(self, recorder: Recorder) -> None:
        """Keep a copy of each value that a recorder is offered, until its step is over."""
        offer, leaf = recorder.offer, recorder.key.leaf

        def share(tensor: Tensor, at: CaptureClock, call: int, backward: int) -> None:
            if not at.opened.over:
                self.given[at.opened].setdefault(leaf, {})[at.microstep, call, backward] = tensor.detach().clone()
            offer(tensor, at, call, backward)

        recorder.offer = share

    def find(self, step: StepState, keys: str, place: Place, *, late: bool) -> Tensor | None:
        """The value of a step that belongs to a place.

        Args:
            step: the step.
            keys: the leaf after its root; if there is one leaf, it is that.
            place: the place.
            late: whether no more values come, so that the only one is meant wherever it is.
        """
        leaves = self.given.get(step, {})
        found = next((values for leaf, values in leaves.items() if keys_of(leaf) == keys), None)
        if found is None and len(leaves) == 1:
            (found,) = leaves.values()
        if found is None:
            return None
        other = found.get(place)
        return next(iter(found.values())) if other is None and late and len(found) == 1 else other


class OtherSeries(Comparing):
    """Compares each value with that of another binding in the same step: of the same microstep, call and backward, or the only one.

    A value whose second tensor has not come yet waits as a copy, at most until its step is over.

    Args:
        shared: the values of the other binding.
    """

    def __init__(self, recorder: Recorder, transforms: Sequence[Transform], dims: tuple[str, ...] | None, shared: SharedValues) -> None:
        super().__init__(recorder, transforms, dims)
        self.shared = shared
        self.keys = keys_of(recorder.key.leaf)
        self.waiting: dict[StepState, list[WaitingValue]] = defaultdict(list)

    def meet(self, value: Tensor, signature: Signature, at: CaptureClock, place: Place) -> None:
        """Compare with the other value if it is there; else wait for it."""
        other = self.shared.find(at.opened, self.keys, place, late=False)
        if other is None and not at.opened.over:
            self.waiting[at.opened].append(WaitingValue(value.clone(), signature, clock_of(at), place))
        else:
            self.compare(value, signature, None if other is None else self.prepared(other)[0], at, place)

    def end_step(self, step: StepState, *, keep: bool) -> None:
        """Compare the values that waited."""
        for one in self.waiting.pop(step, []) if keep else ():
            other = self.shared.find(step, self.keys, one.place, late=True)
            try:
                self.compare(one.value, one.signature, None if other is None else self.prepared(other)[0], one.at, one.place)
            except Exception as error:  # as in a hook
                self.recorder.owner.failed(error, self.recorder.key.leaf, one.at)
        if not keep:
            self.waiting.pop(step, None)


def keys_of(leaf: str) -> str:
    """The keys of a leaf after its root, without the target that it is compared with."""
    return leaf.partition(".vs.")[0].partition(".")[2]
