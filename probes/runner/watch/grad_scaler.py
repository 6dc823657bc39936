"""The one place that watches GradScalers: steps of optimizers that they skip, and overflows of the loss scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Protocol

from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from probes.hooks.capture.tracing import breaks_graph, wraps_eagerly
from probes.runner.watch.process_hooks import changing_listeners, optimizer_stepped

Call = Callable[..., Any]


class ScalerListener(Protocol):
    """A listener to GradScalers."""

    def scaler_scaled(self, scaler: GradScaler, losses: Any) -> None:
        """An enabled scaler has scaled losses (a tensor, or several in a container), so gradients may be scaled."""

    def scaler_stepped(self, scaler: GradScaler, optimizer: Any, *, skipped: bool) -> None:
        """A scaler was asked to step an optimizer, and has done so or skipped it."""

    def scaler_updated(self, scaler: GradScaler) -> None:
        """A scaler has settled the iteration."""


class ScalerWatch:
    """Wraps `scale`, `step` and `update` of every class of GradScaler while anybody listens."""

    def __init__(self) -> None:
        self.listeners: tuple[ScalerListener, ...] = ()
        self._wrapped: list[tuple[type[GradScaler], str, Call, Call]] = []
        self._updates = 0
        self._within = False
        self._scaling = False
        self._ends: Callable[[], None] | None = None

    def add(self, listener: ScalerListener) -> None:
        """Begin to listen."""
        with changing_listeners:
            if not self.listeners:
                self._wrap()
            self.listeners = (*self.listeners, listener)

    def remove(self, listener: ScalerListener) -> None:
        """Stop listening; a method that the program has replaced since stays the program's."""
        with changing_listeners:
            self.listeners = tuple(one for one in self.listeners if one is not listener)
            if not self.listeners:
                self._unwrap()

    @breaks_graph
    def _updated(self, *_args: object) -> None:
        self._updates += 1

    def _wrap(self) -> None:
        self._ends = optimizer_stepped.add(self._updated)
        around = {"scale": self._scale, "step": self._step, "update": self._update}
        for kind in _kinds(GradScaler):
            for name in around.keys() & vars(kind).keys():
                original = vars(kind)[name]
                ours = wraps(original)(around[name](original))
                self._wrapped.append((kind, name, original, ours))
                setattr(kind, name, ours)

    def _unwrap(self) -> None:
        if self._ends is not None:
            self._ends()
            self._ends = None
        for kind, name, original, ours in self._wrapped:
            if vars(kind).get(name) is ours:
                setattr(kind, name, original)
        self._wrapped.clear()

    def _scale(self, original: Call) -> Call:
        @wraps_eagerly
        def scale(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            within, self._scaling = self._scaling, True  # a derived class may call the method of its base
            try:
                losses = original(scaler, *args, **kwargs)
            finally:
                self._scaling = within
            if scaler.is_enabled() and not within:
                losses = losses if isinstance(losses, Tensor | list | tuple) else list(losses)  # `map` gives its losses once
                for listener in self.listeners:
                    listener.scaler_scaled(scaler, losses)
            return losses

        return scale

    def _step(self, original: Call) -> Call:
        @wraps_eagerly
        def step(scaler: GradScaler, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._within:  # a derived class that calls the method of its base
                return original(scaler, optimizer, *args, **kwargs)
            before, self._within = self._updates, True
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            finally:
                self._within = False
            for listener in self.listeners:
                listener.scaler_stepped(scaler, optimizer, skipped=self._updates == before)
            return result

        return step

    def _update(self, original: Call) -> Call:
        @wraps_eagerly
        def update(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            result = original(scaler, *args, **kwargs)
            for listener in self.listeners:
                listener.scaler_updated(scaler)
            return result

        return update


def _kinds(kind: type[GradScaler]) -> Iterator[type[GradScaler]]:
    """A class and all that are derived from it."""
    yield kind
    for derived in kind.__subclasses__():
        yield from _kinds(derived)


scaler_watch = ScalerWatch()
"""The instance of this process."""
