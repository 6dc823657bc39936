"""Gradients of a module's values: tensor hooks that a module hook arms, never a full backward hook.

`register_full_backward_hook` changes gradients in branching networks, breaks in-place modules and skips dict outputs;
a tensor hook on the value does none of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from probes.hooks.capture.account import Account
from probes.hooks.capture.recorder import Recorder
from probes.hooks.capture.run_state import CaptureClock
from probes.hooks.capture.tap import Tap
from probes.hooks.capture.tracing import breaks_graph, runs_eagerly, undisturbed
from probes.tensors import NO_SHARE, NotCapturable, graph_task, is_wrapped

REWRITTEN = "a later in-place operation changed the tensor, which is a view, so PyTorch dropped its hook"


class GradHook:
    """A tensor hook armed by one forward call; it keeps that call's clock and is freed with its graph."""

    __slots__ = (
        "account",
        "alias",
        "backward",
        "call",
        "epoch",
        "microstep",
        "opened",
        "phase",
        "recorder",
        "reshape",
        "step",
        "tap",
        "version",
    )

    due = None

    def __init__(self, tap: Tap, recorder: Recorder, at: CaptureClock, call: int) -> None:
        self.tap = tap
        self.recorder = recorder
        self.account: Account = tap.account
        self.keep(at, call)
        self.backward = 0
        self.reshape: torch.Size | None = None
        self.alias: Tensor | None = None
        self.version = 0

    def keep(self, at: CaptureClock, call: int) -> None:
        """Keep the clock of a call."""
        self.epoch, self.phase, self.step, self.microstep, self.opened = at.epoch, at.phase, at.step, at.microstep, at.opened
        self.call = call

    @breaks_graph
    def __call__(self, grad: Tensor | None) -> None:
        """Store a gradient; None, which PyTorch passes for an unused sibling output, stays unfired."""
        if grad is None:
            return
        backward = self.backward
        self.backward = backward + 1
        self.alias = None
        if not backward:
            self.account.returned += 1
        opened = self.opened
        opened.differentiated = True
        if opened.dropped:
            return
        if opened.paused:  # as when an evaluation runs before the backward
            with self.recorder.state.within(opened):
                self.take(grad, backward)
        else:
            self.take(grad, backward)

    def take(self, grad: Tensor, backward: int) -> None:
        """Store a gradient; a failure never leaves the hook."""
        try:
            undisturbed(self.offer, grad)(grad, backward)
            scales = self.recorder.state.scales
            if scales is not None:
                scales.note(self.recorder.key.probe, self)
        except Exception as error:  # the hook boundary: a failing probe must not change training
            self.tap.failed(error, self.recorder.key.leaf, self)
        else:
            self.account.give(self.opened)

    def offer(self, grad: Tensor, backward: int) -> None:
        """Give a gradient to the recorder."""
        self.recorder.offer(grad if self.reshape is None else grad.reshape(self.reshape), self, self.call, backward)

    def watch(self, tensor: Tensor) -> None:
        """Watch a view: a later in-place operation makes PyTorch drop its hooks silently.

        The alias shares the version counter; it is dropped when the gradient comes or the step ends.
        """
        self.alias = tensor.detach()
        self.version = tensor._version

    def lost(self) -> bool:
        """Whether a watched view was rewritten before its gradient came."""
        alias, self.alias = self.alias, None
        if alias is None or self.backward or alias._version == self.version:
            return False
        self.backward = -1
        return True

    @runs_eagerly
    def __del__(self) -> None:
        """The graph was freed, so no gradient can come any more."""
        if not self.backward:
            self.account.unused += 1


class ArmedHooks:
    """The tensor hooks of one step that are checked at its end."""

    def __init__(self) -> None:
        self.views: list[GradHook] = []
        self.handles: list[Any] = []

    def settle(self) -> None:
        """End the step: views that were rewritten are counted as lost, hooks on leaves are removed."""
        for hook in self.views:
            if hook.lost():
                hook.tap.failed(NotCapturable("lost in-place", REWRITTEN), hook.recorder.key.leaf, hook)
        self.views.clear()
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def whole_base(module: object, tensor: Tensor) -> Tensor | None:
    """The base of a `Linear`'s output that is a view of exactly all of the base, or None.

    With a bias and a 3-D input `Linear` returns a view of the product; a hook on the base outlives in-place operations
    on the view, and nobody else can use the base, so its gradient is the output's.
    """
    if type(module) is torch.nn.Linear:
        base = tensor._base
        if base is not None and base.grad_fn is not None and base.numel() == tensor.numel() and base.is_contiguous():
            return base
    return None


class GradTap(Tap):
    """Captures the gradient of the value: arms a tensor hook on every tensor of it.

    The value's root gives the leaf names: `grad_output.logits` is the gradient of `output.logits`.
    """

    __slots__ = ("aliases", "armed", "first", "module", "passes", "producer", "task")

    aliases: frozenset[int] | None
    producer: Any
    armed: ArmedHooks
    module: object
    task: int
    first: list[tuple[CaptureClock, int]]
    passes: list[GradHook]

    def begin(self, armed: ArmedHooks) -> GradTap:
        """Give the tap the list of armed hooks."""
        self.armed = armed
        self.aliases = None
        self.producer = None
        self.module = None
        self.task = -1
        self.first = []
        self.passes = []
        return self

    def take_output(self, module: object, value: object, at: CaptureClock, call: int) -> None:
        """Arm a module's output; the module shows whether it made a view itself."""
        self.module = module
        self.take(value, at, call)
        self.module = None

    def handle(self, value: object, at: CaptureClock, call: int) -> None:
        """Arm a tensor hook on every tensor that requires a gradient."""
        self.account.fired += 1
        task = graph_task()
        recompute = task != -1
        if not torch.is_grad_enabled():
            if not recompute:
                self.first.append((at, call))
                self.account.without = at.opened
            return
        if recompute and (not self.first or (self.passes and task != self.task)):
            return  # non-reentrant checkpointing, alone or within a reentrant one: the first pass carries the gradients
        self.task = task
        if type(value) is Tensor and not self.keys:
            single = self.single
            if single is None:
                single = self.single = self.recorder(self.root)
            if not self.arm(single, value, at, call, recompute):
                self.account.lacks("frozen", at.opened)
            return
        armed = [self.try_to_arm(recorder, tensor, at, call, recompute) for recorder, tensor in self.parts(value)]
        if armed and not any(armed):
            self.account.lacks("frozen", at.opened)

    def try_to_arm(self, recorder: Recorder, tensor: Tensor, at: CaptureClock, call: int, recompute: bool) -> bool:
        """Arm one tensor of several; a failure is counted, and does not affect the others."""
        try:
            return self.arm(recorder, tensor, at, call, recompute)
        except Exception as error:  # as in `take`
            self.failed(error, recorder.key.leaf, at)
            return True

    def arm(self, recorder: Recorder, tensor: Tensor, at: CaptureClock, call: int, recompute: bool) -> bool:
        """Arm one tensor; False if it cannot get a gradient."""
        # Reading grad_fn first matters: registering on a stale view kills the process otherwise (pytorch/pytorch#196459).
        node = tensor.grad_fn
        if is_wrapped(tensor):
            raise NotCapturable("functorch", "gradients of functorch transforms do not pass through hooks on tensors")
        if not tensor.requires_grad:
            return False
        if self.aliases is not None and id(tensor) not in self.aliases:
            raise NotCapturable("no share", NO_SHARE)
        written = self.written(tensor) if self.producer is not None else None
        hook = self.hook(recorder, at, call, recompute)
        if recompute:
            self.passes.append(hook)
        self.account.armed += 1
        self.account.armed_in = at.opened
        if written is not None:
            hook.reshape = tensor.shape
            written.register_hook(OfFirstInput(hook))
            return True
        view = tensor._is_view()
        base = whole_base(self.module, tensor) if view else None
        if base is not None:
            hook.reshape = tensor.shape
            base.register_hook(hook)  # type: ignore[no-untyped-call]  # untyped in torch
            return True
        handle = tensor.register_hook(hook)  # type: ignore[no-untyped-call]  # untyped in torch
        if node is None:
            self.armed.handles.append(handle)
        elif view:
            hook.watch(tensor)
            self.armed.views.append(hook)
        return True

    def written(self, tensor: Tensor) -> Any:
        """The graph node of the operation by which a module has rewritten its input: its result carries the module's share.

        Raises:
            NotCapturable: it is not one operation on all of the memory.
        """
        base = tensor._base if tensor._is_view() else tensor
        node = base.grad_fn if base is not None else None
        whole = base is tensor or (base is not None and base.numel() == tensor.numel() and base.is_contiguous() and tensor.is_contiguous())
        if node is None or not whole or not node.next_functions or node.next_functions[0][0] is not self.producer:
            raise NotCapturable("lost in-place", "the module does not rewrite its input by one operation on all of a tensor's memory")
        return node

    def hook(self, recorder: Recorder, at: CaptureClock, call: int, recompute: bool) -> GradHook:
        """The tensor hook to arm."""
        return RecomputedGradHook(self, recorder, at, call) if recompute else GradHook(self, recorder, at, call)

    def resolve(self) -> None:
        """Give the hooks of one recompute the clocks of the corresponding calls in the first pass.

        The k calls of a recompute repeat the last k calls of the first pass that have not been repeated yet.
        """
        calls = sorted({hook.call for hook in self.passes})
        clocks = self.first[len(self.first) - len(calls) :]
        del self.first[len(self.first) - len(calls) :]
        for hook in self.passes:
            hook.keep(*clocks[calls.index(hook.call)])
        self.passes = []

    def end_step(self) -> None:
        """Forget first passes that no backward repeated; they ran without gradients."""
        if self.first:
            self.account.skip("no_grad", len(self.first))
            self.first.clear()
        self.passes.clear()


class OfFirstInput:
    """A hook on a graph node that passes on the gradient of the node's first input."""

    __slots__ = ("hook",)

    def __init__(self, hook: GradHook) -> None:
        self.hook = hook

    @breaks_graph
    def __call__(self, grads: tuple[Tensor | None, ...], _outputs: object) -> None:
        self.hook(grads[0])


class RecomputedGradHook(GradHook):
    """A tensor hook armed in a recompute; the clock of the first pass is known when the first gradient comes."""

    __slots__ = ()

    @breaks_graph
    def __call__(self, grad: Tensor | None) -> None:
        """Determine the clocks of the recompute, then store the gradient."""
        if isinstance(self.tap, GradTap) and self in self.tap.passes:
            self.tap.resolve()
        super().__call__(grad)
