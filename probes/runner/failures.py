"""What went wrong in a run, and whether it ends the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from probes.errors import ProbesError, RunError, StorageError
from probes.hooks.capture.run_state import RunState
from probes.hooks.capture.tap import Tap
from probes.plan import Binding, Plan


class Failures:
    """Keeps the first failure, and says when it is to be raised.

    Args:
        plan: the plan; its spec says what ends the run.
        moment: what the hooks see; where the disk fails its writer is taken away.

    Attributes:
        first: the first failure that a run ends with, if it is not raised earlier.
        stopped: why nothing is captured any more; empty while all is well.
        fatal: whether it is too early to go on without captures.
    """

    def __init__(self, plan: Plan, moment: RunState) -> None:
        self.spec = plan.loaded.spec
        self.moment = moment
        self.first: ProbesError | None = None
        self.stopped = ""
        self.fatal = False

    @property
    def due(self) -> ProbesError | None:
        """What is to be raised at once: the spec says `on_error: raise`, or it is too early to go on without captures."""
        strict = "raise" in (self.spec.on_error, self.spec.limits.on_limit)
        return self.first if self.fatal or strict else None

    def add(self, error: ProbesError) -> None:
        """Keep a failure, where it is the first."""
        self.first = self.first or error

    def stop(self, error: StorageError, *, fatal: bool = False) -> None:
        """Capture nothing any more."""
        self.stopped = self.stopped or str(error)
        self.fatal = self.fatal or fatal
        self.add(error)
        self.moment.writer = None

    @contextmanager
    def storage(self) -> Iterator[None]:
        """A disk that fails stops the captures; training goes on unless the spec says otherwise."""
        try:
            yield
        except StorageError as error:
            self.stop(error)

    def failed(self, binding: Binding, tap: Tap, error: Exception) -> None:
        """Switch off a probe that failed in a hook, or all where the disk did."""
        if isinstance(error, StorageError):
            self.stop(error)
            return
        tap.broken = True
        tap.account.skip("failed")
        place = f"`{binding.target}`" if binding.target else "the model"
        text = f"probe `{binding.name}` on {place} failed in epoch {self.moment.epoch} step {self.moment.step}: {error}"
        tap.account.error = text
        if self.spec.on_error == "raise":
            self.add(RunError(text))
