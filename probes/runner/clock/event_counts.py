"""The events of a program that a run saw: counted by the clock, printed at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class EventCounts:
    """Counts of events.

    Attributes:
        updates: optimizer steps, those that a GradScaler skipped included.
        skipped: those.
        update_steps: steps of phase `train` in which an optimizer stepped.
        eval_updates: optimizer steps before which only calls of other phases were made.
        training_calls: outermost calls of phase `train`.
        accumulated: those that continued a step that an earlier call, and not the loop, had opened.
        other_calls: outermost calls of other phases.
        outside: calls outside any epoch.
        several: whether several optimizer steps came on one batch.
        transformed: calls within transforms of `torch.func`, which are in no step.
        alone: calls of parts without parameters that belong to no step, by the path of the part.
    """

    updates: int = 0
    skipped: int = 0
    update_steps: int = 0
    eval_updates: int = 0
    training_calls: int = 0
    accumulated: int = 0
    other_calls: int = 0
    outside: int = 0
    several: bool = False
    transformed: int = 0
    alone: Counter[str] = field(default_factory=Counter)
    _trained: bool = False
    _evaluated: bool = False

    def as_dict(self) -> dict[str, int | bool]:
        """Plain data."""
        return {name: getattr(self, name) for name in PUBLIC}

    def call(self, training: bool) -> None:
        """Count an outermost call."""
        if training:
            self.training_calls += 1
            self._trained = True
        else:
            self.other_calls += 1
            self._evaluated = True

    def update(self, *, skipped: bool, first: bool) -> None:
        """Count an optimizer step; `first`, where it is the first of a training step."""
        self.updates += 1
        self.skipped += skipped
        self.update_steps += first
        self.eval_updates += self._evaluated and not self._trained
        self._trained = self._evaluated = False


PUBLIC = ("updates", "skipped", "update_steps", "eval_updates", "training_calls", "other_calls", "outside", "several")
