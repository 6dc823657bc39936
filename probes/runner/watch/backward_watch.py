"""The one place that watches `Tensor.backward`: the losses of a program that does not log them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from probes.hooks.capture.tracing import breaks_graph, wraps_eagerly
from probes.runner.watch.process_hooks import changing_listeners
from probes.tensors import leaves

is_compiling = torch.compiler.is_compiling


class BackwardListener(Protocol):
    """A listener to losses."""

    def backward_begins(self, loss: Tensor) -> None:
        """The program calls `backward` on a scalar.

        Args:
            loss: detached, without the loss scale; fresh memory or the memory of the loss.
        """


class BackwardWatch:
    """Wraps `Tensor.backward` while anybody listens.

    Attributes:
        training: the threads in which a model was called for training; a loss in one of them is not that of a model of another thread.
    """

    def __init__(self) -> None:
        self.training: set[int] = set()
        self.listeners: tuple[BackwardListener, ...] = ()
        self._original: Callable[..., Any] = Tensor.backward
        self._ours: Callable[..., Any] | None = None
        self._scaled: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}

    def add(self, listener: BackwardListener) -> None:
        """Begin to listen."""
        with changing_listeners:
            self.listeners = (*self.listeners, listener)
            if self._ours is None:
                self._original = Tensor.backward
                self._ours = self._wrapper(self._original)
                Tensor.backward = self._ours  # type: ignore[method-assign]  # restored by `remove`

    def remove(self, listener: BackwardListener) -> None:
        """Stop listening; a method that the program has replaced meanwhile stays in place."""
        with changing_listeners:
            self.listeners = tuple(one for one in self.listeners if one is not listener)
            if not self.listeners and self._ours is not None:
                if Tensor.backward is self._ours:
                    Tensor.backward = self._original  # type: ignore[method-assign]  # the original function, saved above
                self._ours = None
                self._scaled.clear()
                self.training.clear()

    @breaks_graph
    def note_scale(self, scaler: GradScaler, losses: Any) -> None:
        """Remember the scale of losses that a scaler has scaled, until they are freed."""
        if self.listeners and scaler._scale is not None:
            scale = scaler._scale.detach().clone()  # a scaler updates its own in place
            for _, loss in leaves(losses, "loss"):
                key = id(loss)
                self._scaled[key] = weakref.ref(loss, lambda _, key=key: self._scaled.pop(key, None)), scale  # type: ignore[misc]  # bound early

    def _wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        @wraps_eagerly
        def backward(loss: Tensor, *args: Any, **kwargs: Any) -> Any:
            if not is_compiling() and loss.numel() == 1:
                self._notice(loss)
            return original(loss, *args, **kwargs)

        return backward

    @breaks_graph
    def _notice(self, loss: Tensor) -> None:
        known = self._scaled.get(id(loss))
        value = loss.detach()
        if known is not None and known[0]() is loss:
            value = value / known[1].to(value.device)
        for listener in self.listeners:
            listener.backward_begins(value)


backward_watch = BackwardWatch()
"""The instance of this process."""
