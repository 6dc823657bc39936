"""The recorder of a leaf whose captures are merged over the epoch, and stored as one at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from probes.clock import SeriesKey
from probes.component import Accumulation, StepSamples, Transform
from probes.hooks.capture.account import Account
from probes.hooks.capture.pipeline import LaterTransforms, Pipeline
from probes.hooks.capture.recorder import PLAIN, Recorder
from probes.hooks.capture.run_state import CaptureClock, RunState, StepState
from probes.hooks.capture.shard import WHOLE
from probes.signature import Signature
from probes.tensors import unwrapped


@dataclass(slots=True)
class LastClock:
    """The clock of a step that is over, such as the last one of a merged capture."""

    epoch: int
    phase: str
    step: int
    microstep: int
    opened: StepState

    @property
    def due(self) -> None:
        """Nothing is pending."""


class StepResult(NamedTuple):
    """The result of one value of the open step, to be merged once the step is committed.

    Attributes:
        order: its clock within the step; parts are merged by it, whatever thread made them.
        at: the last step that it includes.
        value: on the host, owned.
        signature: its names and labels.
        rows: how many samples it is of, if the transform counts them.
    """

    order: tuple[str, int, int, int, int]
    at: LastClock
    value: Tensor
    signature: Signature
    rows: int


def _call(part: StepResult) -> tuple[int, ...]:
    """The step, call and backward, which are the same for all microsteps of a step."""
    return (part.at.step, *part.order[3:])


class Accumulator(Recorder):
    """Merges the captures of one leaf of one binding over an epoch.

    What a step gave waits until it is committed; the result waits for the end of the epoch, and is handed to the journal then.
    """

    __slots__ = ("accumulation", "before", "behind", "merged", "waiting")

    def __init__(
        self,
        key: SeriesKey,
        state: RunState,
        account: Account,
        transforms: Sequence[Transform],
        dims: tuple[str, ...] | None,
        attrs: dict[str, object],
    ) -> None:
        place = next(index for index, transform in enumerate(transforms) if isinstance(transform, Accumulation))
        accumulation = transforms[place]
        assert isinstance(accumulation, Accumulation)
        super().__init__(key, state, account, (), None, attrs)
        self.transforms = tuple(transforms)
        self.accumulation = accumulation
        self.before = Pipeline(transforms[: place + 1], dims)
        self.pipeline = self.behind = LaterTransforms(transforms[place + 1 :])
        self.waiting: list[StepResult] = []
        self.merged: dict[str, StepResult] = {}

    def put(self, tensor: Tensor, at: CaptureClock, call: int, backward: int, sharding: Mapping[str, object] = WHOLE) -> None:
        """Add a value to the open step's part of the result.

        Args:
            tensor: any shape, dtype and device, owned by the model; no reference is kept.
            at: the clock of the value.
            call: call of the module within the outermost call.
            backward: how often this arming has fired before.
            sharding: what `LocalParts.split` states, if `tensor` is a part.

        Raises:
            NotCapturable: the value is sharded in another way than those before it in the epoch.
        """
        if type(tensor) not in PLAIN:
            tensor, sharding = self.parts.split(tensor)
        if not isinstance(self.before, LaterTransforms):  # the values of this comparison were checked before it
            self.parts.require_one(sharding)
        tensor = unwrapped(tensor)
        self.refuse_composite(tensor)
        value, signature = self.before(tensor)
        kept = torch.clone(value).cpu()
        order = (at.phase, at.step, at.microstep, call, backward)
        self.waiting.append(
            StepResult(
                order,
                LastClock(self.state.epoch, at.phase, at.step, 0, StepState()),
                kept,
                signature,
                self.accumulation.rows_of(kept),
            )
        )

    def end_step(
        self, phase: str, step: int, keep: bool, ids: Sequence[int | str] = (), logged: Mapping[str, Tensor] | None = None
    ) -> None:
        """Merge the results of a committed step, or drop them; the results of an enclosing step keep waiting.

        Args:
            phase: its phase.
            step: its number.
            keep: whether it was committed.
            ids: ids of its samples.
            logged: what the program has logged in it for transforms.
        """
        parts = [part for part in self.waiting if part.at.phase == phase]
        self.waiting = [part for part in self.waiting if part.at.phase != phase]
        self._merge((part for part in parts if keep or part.at.step != step), ids, logged or {})

    def _merge(self, parts: Iterable[StepResult], ids: Sequence[int | str] = (), logged: Mapping[str, Tensor] | None = None) -> None:
        ordered = sorted(parts, key=lambda part: part.order)
        rows: Counter[tuple[int, ...]] = Counter()  # number of samples in earlier microsteps, by step, call and backward
        every: Counter[tuple[int, ...]] = Counter()  # of all microsteps
        for part in ordered:
            every[_call(part)] += part.rows
        for part in ordered:
            known, name = self.merged.get(part.at.phase), _call(part)
            samples = StepSamples(part.at.step, rows[name], every[name], ids, logged or {})
            rows[name] += part.rows
            try:
                value = self.accumulation.placed(part.value, samples)
                value = value if known is None else self.accumulation.merge(known.value, value)
            except Exception as error:  # as in a hook: the values before and after it are merged
                self.owner.failed(error, self.key.leaf, part.at)
            else:
                self.merged[part.at.phase] = part._replace(value=value)

    def end_epoch(self) -> None:
        """Write the result of every phase to the journal; it includes values that came after their step was committed."""
        parts, self.waiting = self.waiting, []
        self._merge(parts)
        merged, self.merged = self.merged, {}
        sharding, self.parts.one = self.parts.one, None
        for _, part in sorted(merged.items()):
            self.behind.start_with(part.signature)
            try:
                super().put(part.value, part.at, 0, 0, sharding or WHOLE)
            except Exception as error:  # as in a hook
                self.owner.failed(error, self.key.leaf, part.at)
