"""The step that an outermost call belongs to: an open one, or a new one."""

from __future__ import annotations

from dataclasses import dataclass

from probes.runner.clock.batch_passes import TRAIN, BatchPasses
from probes.runner.clock.event_counts import EventCounts
from probes.runner.clock.open_epoch import OpenEpoch
from probes.runner.clock.open_steps import OpenStep, OpenSteps


@dataclass(slots=True)
class CallSteps:
    """Finds the step of a call, and ends the steps that the call shows to be over.

    Args:
        rule: what ends a step of phase `train`: `optimizer`, `update`, `batch` or `forward`.
        steps: the steps that are open.
        passes: the passes over loaders.
        current: the epoch that is open.
        seen: counts of what the run saw.
    """

    rule: str
    steps: OpenSteps
    passes: BatchPasses
    current: OpenEpoch
    seen: EventCounts

    def of(self, phase: str, level: int, *, grad: bool) -> OpenStep:
        """The step of a call that enters.

        Args:
            phase: the phase of the call.
            level: how many phases the loop has named around it.
            grad: whether gradients are on.
        """
        return self._of_training(level) if phase == TRAIN else self._of_other(phase, level, grad=grad)

    def ahead(self) -> tuple[str, int] | None:
        """The phase and number of the step that a training call would open now; None if it would continue an open one."""
        item = self.steps.item()
        if item is not None and item.index < 0:
            phase = item.phase or TRAIN
            return phase, self.steps.counts[phase]
        step = item if item is not None and item.phase == TRAIN else self.steps.accumulating(item)
        if step is not None and not (step.accumulates and self._is_over(step)):
            return None
        return TRAIN, self.steps.counts[TRAIN]

    def _of_training(self, level: int) -> OpenStep:
        if self.passes.fresh:
            self.current.feed()
        else:
            self.passes.keep()
        stack = self.steps.stack
        if stack and stack[-1].item is None:
            self.steps.end_other_phases()
        item = self.steps.item() if stack else None
        step = item
        if item is None or item.phase not in ("", TRAIN):
            step = self.steps.accumulating(item)
            if step is not None and step.accumulates and self._is_over(step):
                self.steps.end(step)
                step = None
            elif step is not None:
                self.seen.accumulated += 1
        if step is None:
            self.current.roll()
            step = self.steps.push(OpenStep(TRAIN, level))
        step.called = step.updates > 0
        return step if stack[-1] is step else self.steps.go_on(step)

    def _is_over(self, step: OpenStep) -> bool:
        """Whether a training call is the first after a training step that the loop did not open."""
        if self.rule == "forward":
            return True
        if self.rule == "batch":
            return step.pulled
        if self.rule == "optimizer" and self.passes.has_main:
            return False
        return bool(step.updates)

    def _of_other(self, phase: str, level: int, *, grad: bool) -> OpenStep:
        self.current.foresee(grad=grad)
        if self.passes.fresh:
            self.passes.evaluate()
        item = self.steps.item()
        if item is not None and item.phase in ("", phase):
            return self.steps.go_on(item)
        step = self.steps.innermost()
        batch = self.passes.evaluated(phase)
        if step is not None and batch is not None and step.batch is batch and step.phase == phase:
            return step
        if step is not None and step.item is None and not step.running and (step.phase != TRAIN or self._is_left(step)):
            self.steps.end(step)
        if batch is None or not batch.unserved:
            return self.steps.push(OpenStep(phase, level, single=True))
        batch.serve()
        return self.steps.push(OpenStep(phase, level, batch=batch))

    def _is_left(self, step: OpenStep) -> bool:
        """Whether a call of another phase ends the open training step instead of running within it."""
        return bool(step.updates) and not self.passes.has_main
