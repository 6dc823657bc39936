"""Noticing what a GradScaler thinks of a step's gradients: those that overflow are no accident, and are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch.amp.grad_scaler import GradScaler

Call = Callable[..., Any]


class Judge(Protocol):
    """Who found a gradient that is not finite, and waits for what a scaler says of it."""

    @property
    def undecided(self) -> bool:
        """Whether there is such a gradient."""

    def dismiss(self) -> None:
        """It was the scaling: the optimizer's step is skipped, and the scale goes down."""

    def confirm(self) -> None:
        """The scaler has settled the iteration, and found nothing wrong with the gradients of any parameter."""


class Scalers:
    """Stands around `scale`, `step` and `update` of every kind of GradScaler.

    Args:
        judge: is told.

    Attributes:
        live: whether a scaler has scaled anything, so that gradients may be scaled.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.live = False
        self._wrapped: list[tuple[type[GradScaler], str, Call, Call]] = []

    def start(self) -> None:
        """Begin to watch."""
        around = {"scale": self._scale, "step": self._step, "update": self._update}
        for kind in _kinds(GradScaler):
            for name in around.keys() & vars(kind).keys():
                original = vars(kind)[name]
                ours = around[name](original)
                self._wrapped.append((kind, name, original, ours))
                setattr(kind, name, ours)

    def stop(self) -> None:
        """Take everything back, where it is still ours."""
        for kind, name, original, ours in self._wrapped:
            if vars(kind).get(name) is ours:
                setattr(kind, name, original)
        self._wrapped.clear()

    def _scale(self, original: Call) -> Call:
        def scale(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            self.live = self.live or scaler.is_enabled()
            return original(scaler, *args, **kwargs)

        return scale

    def _step(self, original: Call) -> Call:
        def step(scaler: GradScaler, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(scaler, optimizer, *args, **kwargs)
            undecided = self.judge.undecided and scaler.is_enabled()  # asking for more would wait for the device
            if undecided and any(found.item() for found in scaler._found_inf_per_device(optimizer).values()):
                self.judge.dismiss()
            return result

        return step

    def _update(self, original: Call) -> Call:
        def update(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            result = original(scaler, *args, **kwargs)
            if self.judge.undecided and scaler.is_enabled():
                self.judge.confirm()
            return result

        return update


def _kinds(kind: type[GradScaler]) -> Iterator[type[GradScaler]]:
    """A class and all that are derived from it."""
    yield kind
    for derived in kind.__subclasses__():
        yield from _kinds(derived)
