"""Conditions on a number that another series, or the program, gives in the same step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from probes.component import Transform
from probes.hooks.capture.accumulator import LastClock
from probes.hooks.capture.condition_check import ConditionCheck, UnusualNumber
from probes.hooks.capture.recorder import PLAIN, Recorder
from probes.hooks.capture.run_state import CaptureClock, StepState
from probes.hooks.capture.shard import WHOLE
from probes.spec.when import Condition

Found = Callable[[UnusualNumber, Recorder | None, CaptureClock, int, int], None]
"""Called with a number for which the condition holds, its recorder (None for a logged value), and its clock, call and backward."""


class HeldCapture(NamedTuple):
    """A capture that waits for the number; the tensor is a copy."""

    recorder: Recorder
    value: Tensor
    at: LastClock
    call: int
    backward: int
    sharding: Mapping[str, object]


class OtherNumber:
    """One condition on a number elsewhere: of the values of another probe, or of a logged value.

    The condition holds for a step if it holds for one number of it. A capture waits as a copy until such a number comes, at most until
    the step is over.

    Args:
        condition: the condition; it has `series` or `loop`.
        found: called with each number for which it holds.
    """

    def __init__(self, condition: Condition, found: Found | None = None) -> None:
        self.condition = condition
        self.found = found
        self.met: set[StepState] = set()
        self.held: dict[StepState, list[HeldCapture]] = defaultdict(list)
        self.holders: list[Recorder] = []
        self.of_loop = ConditionCheck(condition, (), None)

    def listen(self, recorder: Recorder, transforms: Sequence[Transform], dims: tuple[str, ...] | None) -> None:
        """Compare each value that a recorder of the other probe is offered.

        Args:
            recorder: the recorder.
            transforms: its transforms, for a condition without `of`.
            dims: names of the axes of the value.
        """
        offer, check = recorder.offer, ConditionCheck(self.condition, transforms, dims)
        recorder.further_conditions.append(check)

        def listened(tensor: Tensor, at: CaptureClock, call: int, backward: int, sharding: Mapping[str, object] = WHOLE) -> None:
            if type(tensor) not in PLAIN:  # once for the condition and the capture: `gather: full` is a collective
                tensor, sharding = recorder.parts.split(tensor)
            try:
                number = check.find(tensor, at.phase)
            except Exception as error:  # as in a hook: the condition fails, and not the value
                self._failed(error, at)
            else:
                if number is not None:
                    self._hold(number, recorder, at, call, backward)
            offer(tensor, at, call, backward, sharding)

        recorder.offer = listened

    def _failed(self, error: Exception, at: CaptureClock) -> None:
        for recorder in self.holders[:1]:
            recorder.owner.failed(error, recorder.key.leaf, at)

    def _hold(self, number: UnusualNumber, recorder: Recorder | None, at: CaptureClock, call: int, backward: int) -> None:
        self.met.add(at.opened)
        if self.found is not None:
            self.found(number, recorder, at, call, backward)

    def filter(self, recorder: Recorder) -> None:
        """Put only captures of steps for which the condition holds."""
        self.holders.append(recorder)
        put = recorder.put

        def offer(tensor: Tensor, at: CaptureClock, call: int, backward: int, sharding: Mapping[str, object] = WHOLE) -> None:
            if type(tensor) not in PLAIN:  # before the decision, which other ranks may take otherwise: `gather: full` is a collective
                tensor, sharding = recorder.parts.split(tensor)
            if at.opened in self.met:
                put(tensor, at, call, backward, sharding)
            elif at.opened.over:
                recorder.account.skip("filtered")
            else:
                clock = LastClock(at.epoch, at.phase, at.step, at.microstep, at.opened)
                self.held[at.opened].append(HeldCapture(recorder, tensor.detach().clone(), clock, call, backward, sharding))

        recorder.filter_by(offer)

    def end_step(self, step: StepState, at: CaptureClock, logged: Mapping[str, Tensor], *, keep: bool) -> None:
        """Decide about the waiting captures, because the step is over.

        Args:
            step: the step.
            at: its clock.
            logged: the numbers that the program has logged in it, by name.
            keep: whether it is committed.
        """
        if keep and self.condition.loop is not None:
            self._of_logged(logged.get(self.condition.loop), at)
        held, holds = self.held.pop(step, []), step in self.met
        self.met.discard(step)
        for one in held if keep else ():
            if not holds:
                one.recorder.account.skip("filtered")
                continue
            try:
                one.recorder.put(one.value, one.at, one.call, one.backward, one.sharding)
            except Exception as error:  # as in a hook
                one.recorder.owner.failed(error, one.recorder.key.leaf, one.at)

    def _of_logged(self, numbers: Tensor | None, at: CaptureClock) -> None:
        for number in numbers if numbers is not None else ():
            try:
                found = self.of_loop.find(number, at.phase)
            except Exception as error:  # as in a hook
                self._failed(error, at)
                return
            if found is not None:
                self._hold(found, None, at, 0, 0)


class OtherNumbers:
    """The conditions of a run on numbers of other series.

    Attributes:
        filters: that of the `where` of each probe.
        triggers: that of the trigger of each probe.
    """

    def __init__(self) -> None:
        self.filters: dict[str, OtherNumber] = {}
        self.triggers: dict[str, OtherNumber] = {}

    @property
    def all(self) -> list[OtherNumber]:
        """Every condition."""
        return [*self.filters.values(), *self.triggers.values()]

    def listen(self, recorder: Recorder, transforms: Sequence[Transform], dims: tuple[str, ...] | None) -> None:
        """Let each condition that names the probe of a recorder compare its values."""
        for one in self.all:
            if one.condition.series == recorder.key.probe:
                one.listen(recorder, transforms, dims)

    def end_step(self, step: StepState, at: CaptureClock, logged: Mapping[str, Tensor], *, keep: bool) -> None:
        """A step is over."""
        for one in self.all:
            one.end_step(step, at, logged, keep=keep)
