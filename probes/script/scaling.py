"""Noticing optimizer steps that a GradScaler skips, so that such an iteration is a step too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.amp.grad_scaler import GradScaler


class Scaling:
    """Stands around `GradScaler.step`.

    Args:
        stepped: called with the optimizer after every step that a scaler did or skipped.
    """

    def __init__(self, stepped: Callable[[Any], None]) -> None:
        self.stepped = stepped
        self._original: Callable[..., Any] | None = None

    def start(self) -> None:
        """Begin to watch."""
        original: Callable[..., Any] = GradScaler.step
        self._original = original
        stepped = self.stepped

        def step(scaler: GradScaler, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(scaler, optimizer, *args, **kwargs)
            stepped(optimizer)
            return result

        GradScaler.step = step  # type: ignore[assignment, method-assign]  # restored by `stop`

    def stop(self) -> None:
        """Take everything back."""
        if self._original is not None:
            GradScaler.step = self._original  # type: ignore[method-assign]  # the very function found there
            self._original = None
