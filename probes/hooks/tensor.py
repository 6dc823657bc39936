"""Parameters and buffers: their values, and gradients at three named stages."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from probes.hooks.capture.run_state import CaptureClock
from probes.hooks.capture.tap import Tap
from probes.hooks.capture.tracing import breaks_graph
from probes.hooks.edit import Editor
from probes.tensors import NotCapturable

TAKEN = "a hook of the program ran before and set the gradient to None, as with an optimizer that steps in the backward pass"


class TensorTap(Tap):
    """Captures a parameter or buffer, or its gradient.

    `increment` is what one backward adds, `accumulated` is `.grad` after that, `final` is `.grad` as the optimizer used
    it: after unscaling, clipping and averaging over processes.
    """

    __slots__ = ("editor", "handles", "holder", "inner", "is_buffer", "known", "name", "renewed", "stage", "times")

    editor: Editor | None
    handles: list[Any]
    holder: weakref.ref[torch.nn.Module]
    inner: int
    is_buffer: bool
    known: int | None
    name: str
    renewed: int
    stage: str
    times: tuple[int, int]

    def begin(self, holder: torch.nn.Module, name: str, stage: str) -> TensorTap:
        """Set the tensor: attribute `name` of `holder`, read without going through a parametrization."""
        self.holder = weakref.ref(holder)  # a parameter's hook that holds its module would keep both alive permanently
        self.name = name
        self.stage = stage
        self.editor = None
        self.known = None
        self.handles = []
        self.inner = 0
        self.renewed = -1
        self.is_buffer = False
        self.times = (-1, 0)
        return self

    @property
    def tensor(self) -> Tensor | None:
        """The parameter or buffer as it is now."""
        holder = self.holder()
        if holder is None:
            return None
        # The tables of a ScriptModule know `in`, but not `get`.
        for table in (holder._parameters, holder._buffers):
            if self.name in table and table[self.name] is not None:
                return table[self.name]
        return None

    def handle(self, value: object, at: CaptureClock, call: int) -> None:
        """Store a tensor."""
        self.account.fired += 1
        if isinstance(value, Tensor):
            recorder = self.recorder(self.root)
            self.put(recorder, value, at, 0, self.time())
            if self.state.scales is not None and self.root == "grad" and self.stage != "final":
                self.state.scales.note(recorder.key.probe, at)

    def is_due(self) -> bool:
        """Whether the step that is open is due."""
        if self.state.collect is not None:
            self.state.collect()
        return self.state.open and self.wants(self.state, 0)

    def time(self) -> int:
        """How often the tap has already fired in this step."""
        step, times = self.times
        times = times + 1 if step == self.state.step_number else 0
        self.times = (self.state.step_number, times)
        return times

    @breaks_graph
    def on_increment(self, grad: Tensor | None) -> None:
        """The tensor hook of stage `increment`."""
        if grad is not None and self.is_due():
            self.state.opened.differentiated = True
            self.take(grad, self.state, 0)

    @breaks_graph
    def on_accumulated(self, tensor: Tensor) -> None:
        """The post-accumulate hook of stage `accumulated`."""
        if self.is_due():
            self.state.opened.differentiated = True
            if tensor.grad is None:
                self.failed(NotCapturable("absent", TAKEN), self.root, self.state)
            else:
                self.take(tensor.grad, self.state, 0)

    def on_final(self) -> None:
        """The optimizer has stepped."""
        tensor = self.tensor
        if not self.is_due():
            return
        self.absence = "not reached" if tensor is None or tensor.requires_grad else "frozen"
        if tensor is not None and tensor.grad is not None:
            self.take(tensor.grad, self.state, 0)

    def end_step(self) -> None:
        """Wait for the next step of an optimizer that holds the parameter; only `final` needs one."""
        self.absence = "no optimizer step"

    def on_data(self) -> None:
        """The first call of a step is about to run."""
        if self.lazy:
            if self.is_due():
                self.account.skip("no data")
            return
        tensor = self.tensor
        if tensor is not None and self.is_due():
            self.take(tensor, self.state, 0)

    @breaks_graph
    def on_editing_increment(self, grad: Tensor | None) -> Tensor | None:
        """The tensor hook of an edit of stage `increment`: returns the new gradient."""
        if grad is None or self.editor is None or not self.is_due():
            return None
        self.account.fired += 1
        return self.edited(self.editor, grad)

    @breaks_graph
    def on_editing_accumulated(self, tensor: Tensor) -> None:
        """The post-accumulate hook of an edit: replaces the gradient by the new one."""
        if self.editor is None or not self.is_due():
            return
        if tensor.grad is None:
            self.failed(NotCapturable("absent", TAKEN), self.root, self.state)
        else:
            self.account.fired += 1
            tensor.grad = self.edited(self.editor, tensor.grad)

    def edited(self, editor: Editor, grad: Tensor) -> Tensor:
        """Return the edited gradient, and store the drawn tensors."""
        times = self.time()
        result = editor(grad.detach(), self.state, times)
        self.state.opened.differentiated = True
        self.account.give(self.state.opened)
        for name, drawn in editor.drawn.items():
            self.put(self.recorder(f"edit.{name}"), drawn, self.state, 0, times)
        return result

    @property
    def lazy(self) -> bool:
        """Whether the tensor has no shape before the first call."""
        tensor = self.tensor
        return tensor is not None and is_lazy(tensor)

    def notice(self, tensor: Tensor | None) -> None:
        """Report if the parameter is another object than before; a buffer may be. Both may be deleted."""
        if tensor is None and self.known is not None:
            self.account.drift = f"{'buffer' if self.is_buffer else 'parameter'} `{self.name}` was deleted"
        elif self.root == "grad" and self.known is not None and self.is_replaced:
            self.account.drift = f"parameter `{self.name}` was replaced by another parameter"
        if tensor is not None:
            self.inner = tensor._cdata
            self.is_buffer = not isinstance(tensor, torch.nn.Parameter)
        # Not a weak reference: `torch.utils.swap_tensors`, which `Module.to` may use, refuses a tensor that has one.
        self.known = None if tensor is None else id(tensor)

    def why_absent(self) -> str:
        """The reason why an open step has no value."""
        tensor = self.tensor
        if tensor is None or self.is_replaced or self.renewed == self.state.step_number:
            return "replaced"
        return "frozen" if self.absence == "no optimizer step" and not tensor.requires_grad else self.absence

    @property
    def is_replaced(self) -> bool:
        """Whether the tensor is another object than the one that has the hook, or has none since."""
        tensor = self.tensor
        if self.known is not None and id(tensor) != self.known:
            return True
        if tensor is None or not self.handles:
            return False
        # Another tensor may have got the id of this one; and `torch.utils.swap_tensors` exchanges the contents of two objects.
        tables = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None))
        return tensor._cdata != self.inner or any(all(one.hooks_dict_ref() is not table for table in tables) for one in self.handles)

    def attach(self) -> list[Any]:
        """Register the hook of the stage and return its handles; the run calls `final` and `data`."""
        self.handles = self._attach()
        return self.handles

    def _attach(self) -> list[Any]:
        tensor = self.tensor
        exchanged = tensor is not None and bool(self.handles) and id(tensor) == self.known and tensor._cdata != self.inner
        if self.is_replaced:
            self.renewed = self.state.step_number  # of the step that is open, or was the last
        self.notice(tensor)
        if tensor is None or is_lazy(tensor):
            return []
        if self.root == "grad" and self.stage != "final":
            # After `torch.utils.swap_tensors` PyTorch calls no hook of the tensor any more, also a new one.
            self.absence = "replaced" if exchanged else "not reached" if tensor.requires_grad else "frozen"
        if self.root == "data" or self.stage == "final" or not tensor.requires_grad:
            return []
        if self.editor is not None:
            if self.stage == "accumulated":
                return [tensor.register_post_accumulate_grad_hook(self.on_editing_accumulated)]  # type: ignore[no-untyped-call]  # untyped in torch
            return [tensor.register_hook(self.on_editing_increment)]  # type: ignore[no-untyped-call]  # untyped in torch
        if self.stage == "accumulated":
            return [tensor.register_post_accumulate_grad_hook(self.on_accumulated)]  # type: ignore[no-untyped-call]  # untyped in torch
        return [tensor.register_hook(self.on_increment)]  # type: ignore[no-untyped-call]  # untyped in torch
