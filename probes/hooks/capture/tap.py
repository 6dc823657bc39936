"""One binding of a module hook: which part of the value is captured, when, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from probes.hooks.capture.account import Account
from probes.hooks.capture.recorder import Recorder
from probes.hooks.capture.run_state import CaptureClock, Gate, RunState, Within
from probes.hooks.capture.signal_errors import from_signal_handler
from probes.hooks.capture.tracing import dispatch_modes, function_modes, is_transformed, undisturbed
from probes.tensors import LeafNotFound, NotCapturable, describe, follow, leaves, opaque
from probes.transforms.kernels.mask import MaskAbsent
from probes.value_path import ValuePath

MakeRecorder = Callable[[str], Recorder]


class Tap:
    """One binding on one module.

    Args:
        root: the root of the value path, such as `output`.
        keys: the keys after the root.
        gate: whether the step that is open is due.
        within: whether (microstep, call) is due; None for always.
        recorder: makes the recorder of a leaf.
        account: the counters of the binding.
        state: the run's clock.
        on_loss: called for each value that could not be taken.

    Attributes:
        original: whether the value is seen before the spec's edits.
        masks: inputs of the call that transforms of the binding use as masks.
        absence: the reason for a due step in which the hook did not fire.
    """

    __slots__ = (
        "absence",
        "account",
        "gate",
        "keys",
        "make",
        "masks",
        "on_loss",
        "original",
        "recorders",
        "root",
        "single",
        "state",
        "within",
    )

    def __init__(
        self,
        root: str,
        keys: tuple[str, ...],
        gate: Gate,
        within: Within | None,
        make: MakeRecorder,
        account: Account,
        state: RunState,
        on_loss: LossListener,
    ) -> None:
        self.root = root
        self.keys = keys
        self.gate = gate
        self.within = within
        self.make = make
        self.account = account
        self.state = state
        self.on_loss = on_loss
        self.recorders: dict[str, Recorder] = {}
        self.single: Recorder | None = None
        self.original = False
        self.masks: tuple[str, ...] = ()
        self.absence = "not reached"

    def why_absent(self) -> str:
        """The reason why an open step has no value, if the hook did not fire."""
        return self.absence

    def reset_counters(self, account: Account) -> None:
        """Use new counters from now on."""
        self.account = account
        for recorder in self.recorders.values():
            recorder.account = account

    def wants(self, at: CaptureClock, call: int) -> bool:
        """Whether this call is due, given that the hook's gate is open."""
        if not self.gate.due or not (at.due is None or self.gate in at.due):
            return False
        if self.within is None or self.within(at.microstep, call):
            return True
        self.account.skip("filtered")
        return False

    def recorder(self, leaf: str) -> Recorder:
        """The recorder of a leaf."""
        found = self.recorders.get(leaf)
        if found is None:
            found = self.recorders[leaf] = self.make(leaf)
            found.owner = self
        return found

    def parts(self, value: object) -> Iterator[tuple[Recorder, Tensor]]:
        """The tensors that the tap's path leads to, each with its recorder.

        Raises:
            LeafNotFound: the path leads to nothing, or to something without a tensor.
        """
        for path, member in follow(value, self.keys, self.root):
            found = False
            for leaf, tensor in leaves(member, path):
                found = True
                yield self.recorder(leaf), tensor
            if not found and not self.keys:
                raise NotCapturable("no data", f"`{path}` holds no tensor: it is {describe(member)}")
            if not found and "*" not in self.keys:
                raise LeafNotFound(f"`{path}` is {describe(member)}, which holds no tensor")

    def take(self, value: object, at: CaptureClock, call: int) -> None:
        """Process a value of a call that is due; a failure never leaves the hook."""
        try:
            undisturbed(self.handle, value)(value, at, call)
        except Exception as error:  # the hook boundary: a failing probe must not change training
            self.failed(error, self.path, at)

    @property
    def path(self) -> str:
        """The value path, as it is written."""
        return str(ValuePath(self.root, self.keys))

    def failed(self, error: Exception, leaf: str, at: CaptureClock) -> None:
        """Count a value that could not be captured; later values are tried again.

        Args:
            error: what was raised.
            leaf: path of the value.
            at: its clock.
        """
        if from_signal_handler(error):
            raise error
        self.on_loss(self, leaf, error, reason_of(error), at)

    def put(self, recorder: Recorder, tensor: Tensor, at: CaptureClock, call: int, backward: int = 0) -> None:
        """Store one tensor; a failure is counted, and does not affect the other tensors of the value."""
        try:
            undisturbed(recorder.offer, tensor)(tensor, at, call, backward)
        except Exception as error:  # as in `take`
            self.failed(error, recorder.key.leaf, at)
        else:
            self.account.gave = at.opened

    def handle(self, value: object, at: CaptureClock, call: int) -> None:
        """Process a value; each kind of binding has its own way."""
        raise NotImplementedError


LossListener = Callable[[Tap, str, Exception, str, CaptureClock], None]
"""Called with the binding, the leaf, the exception, the reason from the closed list, and the clock of the value."""


def reason_of(error: Exception) -> str:
    """The reason from the closed list for an exception that a value raised."""
    if isinstance(error, NotCapturable):
        return error.reason
    if is_transformed():
        return "functorch"
    return "absent" if isinstance(error, LeafNotFound | MaskAbsent) else "failed"


class ValueTap(Tap):
    """Captures the value itself."""

    __slots__ = ()

    def take(self, value: object, at: CaptureClock, call: int) -> None:
        """Store every tensor of the value, if this call is due; a failure never leaves the hook."""
        if not self.gate.due or ((self.within is not None or at.due is not None) and not self.wants(at, call)):
            return
        account = self.account
        account.fired += 1
        try:
            if type(value) is Tensor and not self.keys:
                recorder = self.single
                if recorder is None:
                    recorder = self.single = self.recorder(self.root)
                offer = recorder.offer
                if function_modes() or dispatch_modes():  # `in_mode`, without a call for each capture
                    offer = undisturbed(offer)
                offer(value, at, call, 0)
                account.gave = at.opened
            else:
                self.handle(value, at, call)
        except Exception as error:  # the hook boundary: a failing probe must not change training
            self.failed(error, self.path, at)

    def handle(self, value: object, at: CaptureClock, call: int) -> None:
        """Store every tensor of a nested value."""
        if self.account.opaque is None:
            self.account.opaque = {path: kind for at, member in follow(value, self.keys, self.root) for path, kind in opaque(member, at)}
        for recorder, tensor in self.parts(value):
            self.put(recorder, tensor, at, call)
