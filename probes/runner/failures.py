"""Failures of a run: how they are reported, and whether they end the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from probes.errors import ProbesError, RunError, Stopped, StorageError
from probes.hooks.capture.account import REASONS
from probes.hooks.capture.run_state import CaptureClock, RunState, StepState
from probes.hooks.capture.tap import Tap
from probes.plan import Binding, Plan
from probes.printable import error_text
from probes.progress.stderr import tell

MOST_REPORTED = 3  # targets of a probe reported for one reason while the program runs, and journals that could not be sealed


class Failures:
    """Keeps the first failure, and decides when it is raised.

    Args:
        plan: the plan; its spec says what ends the run.
        moment: what the hooks see; if the disk fails its writer is taken away.

    Attributes:
        first: the first failure that a run ends with, if it is not raised earlier.
        stopped: why nothing is captured any more; empty while all is well.
        halt: what stops the training: the event of a trigger, or a rule that is broken.
        fatal: whether it is too early to continue without captures.
        gaps: rows for the file, of values that could not be taken, by their step.
        say: where reports go.
    """

    def __init__(self, plan: Plan, moment: RunState) -> None:
        self.spec = plan.loaded.spec
        self.moment = moment
        self.first: ProbesError | None = None
        self.stopped = ""
        self.halt: Stopped | None = None
        self.fatal = False
        self.gaps: dict[StepState, list[list[object]]] = {}
        self.say: Callable[[str], None] = print_line
        self._reported: set[tuple[int, str, str]] = set()
        self._kinds: Counter[tuple[str, str]] = Counter()

    @property
    def due(self) -> ProbesError | None:
        """The failure to raise at once: the spec says `on_error: raise`, or it is too early to continue without captures."""
        if self.first is None:
            return None
        strict = "raise" in (self.spec.on_error, self.spec.limits.on_limit)
        return self.first if self.fatal or strict else None

    def add(self, error: ProbesError) -> None:
        """Keep a failure, if it is the first."""
        self.first = self.first or error

    def stop(self, error: ProbesError, *, fatal: bool = False) -> None:
        """Capture nothing any more; say so at once, as the end of the program may be days away."""
        first, self.stopped = not self.stopped, self.stopped or str(error)
        self.fatal = self.fatal or fatal
        self.add(error)
        self.moment.writer = None
        if first and self.due is None:
            self.say(f"capturing stops, the program continues: {error}")

    @contextmanager
    def storage(self) -> Iterator[None]:
        """A disk that fails stops the captures; training continues unless the spec says otherwise."""
        try:
            yield
        except StorageError as error:
            self.stop(error)

    # Values that could not be taken

    def lost(self, binding: Binding, tap: Tap, leaf: str, error: Exception, reason: str, at: CaptureClock) -> None:
        """Count a value that could not be captured, and report the first of its kind; a disk error ends the captures."""
        if isinstance(error, StorageError):
            self.stop(error)
        if self.stopped or tap.account.stopped_for:  # its reason is the reason for every later value too
            return
        clock = f"epoch {at.epoch} step {at.step}" + (f" of `{at.phase}`" if at.phase != "train" else "")
        detail = f"{error_text(error)}; {clock}"
        self.gaps.setdefault(at.opened, []).append([*binding.key(leaf, at.phase), reason, 1])
        if not tap.account.lose(leaf, reason, detail):
            return
        text = f"probe `{binding.name}`: `{leaf}` of {_place(binding)} is skipped ({reason}): {detail}"
        self._report(binding, leaf, reason, text)
        if reason in ("failed", "absent") and self.spec.on_error == "raise":
            self.add(RunError(text))

    def missing(self, binding: Binding, reason: str, phase: str, step: int) -> None:
        """Report the first due step in which a value is missing."""
        text = f"probe `{binding.name}`: `{binding.value}` of {_place(binding)} is missing in epoch {self.moment.epoch} step {step}"
        self._report(binding, binding.value, reason, f"{text}{f' of `{phase}`' if phase != 'train' else ''}: {reason} ({REASONS[reason]})")

    def _report(self, binding: Binding, leaf: str, reason: str, text: str) -> None:
        """Report once for each value, and for the first few targets of a probe."""
        value = (binding.index, leaf, reason)
        if value in self._reported:
            return
        self._reported.add(value)
        kind = (binding.name, reason)
        self._kinds[kind] += 1
        if self._kinds[kind] <= MOST_REPORTED:
            self.say(text)
        elif self._kinds[kind] == MOST_REPORTED + 1:
            self.say(f"probe `{binding.name}`: further values are skipped ({reason}); the summary names them")

    def gaps_of(self, state: StepState) -> list[list[object]]:
        """The gaps of a step, and those of earlier steps that were found since they ended."""
        late = [other for other in self.gaps if other is state or other.over]
        return [gap for other in late for gap in self.gaps.pop(other)]


def _place(binding: Binding) -> str:
    return f"`{binding.target}`" if binding.target else "the model"


def print_line(text: str) -> None:
    """Write a line on stderr."""
    tell(f"probes: {text}")
