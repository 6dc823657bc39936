"""What became of a binding in an epoch: expected, fired, written, and skipped with a reason."""

from __future__ import annotations

from collections import Counter

REASONS = {
    "not reached": "the module was not called in a step that was due",
    "no_grad": "the module ran with gradients disabled",
    "frozen": "the tensor does not require a gradient",
    "unused output": "the tensor got no gradient: the loss does not depend on it",
    "lost in-place": "the tensor was a view that a later in-place operation changed, so PyTorch dropped its hook",
    "recompute": "the call was a recompute of activation checkpointing, whose values were taken in the first pass",
    "compiled away": "a compiled graph ran without the hook",
    "functorch": "the tensor was wrapped by a functorch transform such as vmap",
    "no data": "the value is not a dense tensor in memory",
    "filtered": "the schedule excludes this call, or no trigger wrote the capture",
    "limit": "the epoch's byte limit had been reached",
    "ring full": "the capture waited for a trigger and was dropped for later ones (`limits.buffer_bytes`)",
    "no optimizer step": "no optimizer used the gradient in that step; a GradScaler skips steps with overflows",
    "failed": "the probe failed and was disabled",
}
"""The closed list of reasons, each with its meaning."""


class Account:
    """The counters of one binding in one epoch.

    Attributes:
        expected: steps in which the binding was due.
        fired: how often its hook fired, or its tensor hook was armed.
        returned: how often an armed tensor hook fired for the first time.
        written: captures handed to the journal.
        nbytes: their bytes.
        missed: due steps in which nothing fired.
        skipped: reason -> how often.
        error: the first failure, as text.
        mark: `fired` when the open step began.
        drift: what was found to be replaced on the model when the epoch began or ended.
        unused: armed tensor hooks whose graph was dropped before a gradient came.
        opaque: members of the value that hold no tensor we can see, such as a cache, with their types; None until looked at.
        paused: whether the step around the open one had fired.
    """

    __slots__ = (
        "armed",
        "drift",
        "error",
        "expected",
        "fired",
        "mark",
        "missed",
        "nbytes",
        "opaque",
        "paused",
        "returned",
        "skipped",
        "unused",
        "written",
    )

    def __init__(self) -> None:
        self.expected = self.fired = self.armed = self.returned = self.written = self.nbytes = self.missed = self.mark = 0
        self.skipped: Counter[str] = Counter()
        self.unused = 0
        self.error = ""
        self.drift = ""
        self.opaque: dict[str, str] | None = None
        self.paused = False

    def skip(self, reason: str, count: int = 1) -> None:
        """Count something that was not captured."""
        self.skipped[reason] += count

    def step_over(self, absence: str, *, sure: bool = True) -> None:
        """Close a step that was due; `absence` is the reason where nothing fired, if that can be told."""
        self.expected += 1
        if self.fired == self.mark and sure:
            self.missed += 1
            self.skip(absence)
        self.mark = self.fired

    def pause(self) -> None:
        """Begin a step within the one that is open."""
        self.paused = self.fired != self.mark
        self.mark = self.fired

    def resume(self) -> None:
        """Go on with the step around, which has fired before if it had when it was paused."""
        self.mark = self.fired - int(self.paused)

    @property
    def alive(self) -> int:
        """Armed tensor hooks whose graph lives still: a later backward may reach them."""
        return max(0, self.armed - self.returned - self.unused - self.skipped["lost in-place"])

    def settle(self) -> None:
        """Count what was armed and whose graph was dropped: nothing of the loss depended on it."""
        if self.unused:
            self.skipped["unused output"] = self.unused

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
        if self.error:
            record["error"] = self.error
        return record
