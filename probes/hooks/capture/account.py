"""The counters of a binding in an epoch: expected, fired, written, and skipped with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from probes.hooks.capture.run_state import StepState

REASONS = {
    "not reached": "the module was not called in a step that was due",
    "replaced": "the module or tensor was replaced by another one, or deleted, and had no hook in that step",
    "removed": "other code removed the hook from the module, which gets it again before its next call",
    "not called": "the module did not call the operation in its own forward in a step that was due",
    "not logged": "the program did not log the value in a step that was due",
    "no_grad": "the module ran with gradients disabled",
    "frozen": "the tensor does not require a gradient",
    "unused output": "the tensor got no gradient: the loss does not depend on it",
    "lost in-place": "the tensor was a view that a later in-place operation changed, so PyTorch dropped its hook",
    "recompute": "the call was a recompute of activation checkpointing, whose values were captured in the first pass",
    "compiled away": "a compiled graph ran without the hook",
    "functorch": "the tensor was wrapped by a functorch transform such as vmap",
    "no data": "the value is not a dense tensor in memory",
    "no share": "the input is in a container that cannot be rebuilt, so the share of its gradient cannot be separated from the total",
    "absent": "the value path led to nothing in that call, or to None",
    "filtered": "the schedule excludes this call, or `where` the capture, or no trigger wrote it",
    "no second tensor": "there was no tensor to compare with: no step before, no such capture of the other run, or no value of the series",
    "limit": "the epoch's byte limit had been reached",
    "ring full": "the capture waited for a trigger and was dropped for later ones (`limits.buffer_bytes`)",
    "no optimizer step": "no optimizer stepped the parameter in that step; a GradScaler skips steps with overflows",
    "unknown before": "the step of the optimizer began before the run, so what the parameter was before it is not known",
    "no state": "the optimizer keeps no state under the parameter; one that wraps another, or copies the parameters, may keep it elsewhere",
    "failed": "the value could not be transformed or stored",
}
"""The closed list of reasons, each with its meaning."""

LOSSES = ("failed", "absent", "no data", "no share", "no state", "lost in-place")
"""The reasons for which an existing value is missing in the file, independent of other values of its step."""

NOT_DUE = ("frozen", "no_grad", "no optimizer step", "unknown before", "functorch", "limit")
"""The reasons for which a step has no value; only `expect: {fires: each_step}` treats these as a fault."""


@dataclass(slots=True)
class Loss:
    """The losses of one leaf for one reason.

    Attributes:
        count: how often.
        first: what was found the first time, and when.
    """

    count: int
    first: str


class _PausedStep(NamedTuple):
    """The state of an account in a step, kept while another step runs within it."""

    gave: StepState | None = None
    armed_in: StepState | None = None
    fired: bool = False
    wrote: StepState | None = None
    fresh: tuple[int, int] = (0, 0)


class Account:
    """The counters of one binding in one epoch.

    Attributes:
        expected: steps in which the binding was due.
        fired: how often its hook fired, or its tensor hook was armed.
        returned: how often an armed tensor hook fired for the first time.
        written: captures handed to the journal, without those of steps that were dropped.
        nbytes: their bytes.
        wrote: the step of the last capture that was not late.
        skipped: reason -> how often.
        lacked: reason -> due steps in which no value was taken.
        losses: (leaf, reason) -> what could not be taken, for the reasons of `LOSSES`.
        lost_for: the reason of the last of them.
        gave: the step that gave a value last.
        armed_in: the step that armed a tensor hook last.
        without: the step in which a gradient was last found not to exist.
        owing: due steps that armed a tensor hook, and ended before a gradient came.
        drift: what was found to be replaced on the model when the epoch began or ended.
        stopped_for: the reason why nothing more is captured in the epoch; empty while something is.
        unused: armed tensor hooks whose graph was dropped before a gradient came.
        opaque: members of the value that hold no tensor we can see, such as a cache, with their types; None until looked at.
    """

    __slots__ = (
        "_before",
        "_mark",
        "_paused",
        "armed",
        "armed_in",
        "drift",
        "expected",
        "fired",
        "gave",
        "lacked",
        "losses",
        "lost_for",
        "nbytes",
        "opaque",
        "owing",
        "returned",
        "skipped",
        "stopped_for",
        "unused",
        "without",
        "written",
        "wrote",
    )

    def __init__(self) -> None:
        self.expected = self.fired = self.armed = self.returned = self.written = self.nbytes = self._mark = 0
        self.wrote: StepState | None = None
        self._before = (0, 0)  # captures and bytes when that step gave its first
        self.skipped: Counter[str] = Counter()
        self.losses: dict[tuple[str, str], Loss] = {}
        self.gave: StepState | None = None
        self.armed_in: StepState | None = None
        self.without: StepState | None = None
        self.lacked: Counter[str] = Counter()
        self.owing: set[StepState] = set()
        self.lost_for = "failed"
        self.stopped_for = ""
        self.unused = 0
        self.drift = ""
        self.opaque: dict[str, str] | None = None
        self._paused: dict[Hashable, _PausedStep] = {}

    def skip(self, reason: str, count: int = 1) -> None:
        """Count something that was not captured."""
        self.skipped[reason] += count

    def lose(self, leaf: str, reason: str, text: str, count: int = 1) -> bool:
        """Count a value that could not be captured; return whether it is the first of its leaf for that reason."""
        self.skip(reason, count)
        self.lost_for = reason
        known = self.losses.get((leaf, reason))
        if known is None:
            self.losses[leaf, reason] = Loss(count, text)
            return True
        known.count += count
        return False

    def give(self, step: StepState) -> None:
        """A value of a step was captured, perhaps after the step has ended."""
        if step.over:
            self.owing.discard(step)
        else:
            self.gave = step

    def first_of(self, step: StepState, nbytes: int) -> None:
        """A capture of another step than the last one is about to be counted."""
        written, size = (self.written, self.nbytes) if not step.over else (self._before[0] + 1, self._before[1] + nbytes)
        self._before = written, size
        self.wrote = self.wrote if step.over else step  # a late capture stays, even if the open step is dropped

    def drop(self) -> None:
        """Take back the captures of the open step: they are not stored."""
        if self.wrote is not None and not self.wrote.over:
            self.written, self.nbytes = self._before

    def fired_late(self, reason: str, *, first: bool) -> None:
        """A value of a step that has ended came late; it does not count for the step that may be open.

        Args:
            reason: what the step was counted under when it ended.
            first: whether it is the first value of that step.
        """
        self.fired += 1
        self._mark += 1
        for counts in (self.skipped, self.lacked) if first else ():
            if counts[reason] > 1:
                counts[reason] -= 1
            else:
                del counts[reason]

    def lacks(self, reason: str, step: StepState) -> None:
        """A module was called, and its value has no gradient."""
        self.without = step
        self.skip(reason)

    def step_given(self) -> None:
        """Close a step that was due and has given its value."""
        self.expected += 1
        self._mark = self.fired

    def step_over(self, step: StepState, absence: str, *, sure: bool = True, owed: bool = True) -> str:
        """Close a step that was due.

        Args:
            step: the step.
            absence: the reason if nothing fired.
            sure: whether it must have its value, and what fired while it was open was its own.
            owed: whether a value that is missing is one too few; a gradient is none if no backward ran.

        Returns:
            Why the step lacks the value; empty if it does not, or if a gradient may come still.
        """
        self.expected += 1
        quiet, self._mark = self.fired == self._mark, self.fired
        if not sure or self.gave is step:
            return ""
        if self.stopped_for:
            self.skip(self.stopped_for)
            self.lacked[self.stopped_for] += 1
            return self.stopped_for
        if quiet:
            self.skip(absence)
        if self.armed_in is step:
            if owed:
                self.owing.add(step)
            return ""
        reason = absence if quiet else "frozen" if self.without is step else self.lost_for
        if owed or reason in NOT_DUE:
            self.lacked[reason] += 1
            return reason
        return ""

    @property
    def missed(self) -> int:
        """The number of due steps without the value."""
        return self.lacked.total() + len(self.owing)

    def pause(self, step: Hashable) -> None:
        """Save the state of a step, for another one."""
        fresh = self.written - self._before[0], self.nbytes - self._before[1]
        self._paused[step] = _PausedStep(self.gave, self.armed_in, self.fired != self._mark, self.wrote, fresh)
        self.wrote = None
        self._mark = self.fired

    def resume(self, step: Hashable) -> None:
        """Continue a step that was paused."""
        self.gave, self.armed_in, fired, self.wrote, (captures, nbytes) = self._paused.pop(step, _PausedStep())
        self._before = self.written - captures, self.nbytes - nbytes
        self._mark = self.fired - int(fired)

    @property
    def alive(self) -> int:
        """The number of armed tensor hooks whose graph still exists: a later backward may reach them."""
        return max(0, self.armed - self.returned - self.unused - self.skipped["lost in-place"])

    def settle(self) -> None:
        """Count armed tensor hooks whose graph was freed: the loss did not depend on the value."""
        if self.unused:
            self.skipped["unused output"] = self.unused

    def absorb(self, other: Account) -> None:
        """Add the counts of a later epoch, whose own counters are dropped."""
        for name in ("expected", "fired", "armed", "returned", "written", "nbytes", "unused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.skipped.update(other.skipped)
        self.lacked.update(other.lacked)
        self.owing |= other.owing
        for key, loss in other.losses.items():
            known = self.losses.setdefault(key, Loss(0, loss.first))
            known.count += loss.count
        self.drift = self.drift or other.drift
        self.opaque = self.opaque or other.opaque

    @property
    def first_loss(self) -> str:
        """The first value that could not be taken, as text; empty if there is none."""
        return next((loss.first for loss in self.losses.values()), "")

    def as_dict(self) -> dict[str, object]:
        """Plain data for the journal's END record, the file and the summary."""
        record: dict[str, object] = {
            "expected": self.expected,
            "fired": self.fired,
            "written": self.written,
            "bytes": self.nbytes,
            "missed": self.missed,
            "skipped": dict(sorted(self.skipped.items())),
        }
        if self.armed:
            record |= {"armed": self.armed, "returned": self.returned}
        if self.alive:
            record["alive"] = self.alive
        if self.drift:
            record["drift"] = self.drift
        if self.opaque:
            record["opaque"] = self.opaque
        if self.losses:
            record["lost"] = [[leaf, reason, loss.count, loss.first] for (leaf, reason), loss in self.losses.items()]
            record["error"] = self.first_loss
        return record
