"""Values that trainers log by themselves: `self.log` of Lightning, and the history of the Trainer of transformers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from probes.script.import_hook import ImportHook

LIGHTNING = ("lightning.pytorch.core.module", "pytorch_lightning.core.module")
TRANSFORMERS = "transformers.trainer"
OTHER_NAMES = {"loss": "logged_loss"}  # `loss` is recorded at each `backward`; a Trainer logs a mean over steps

Log = Callable[[Mapping[str, Any]], None]


class FrameworkLogs:
    """Passes on values that trainers log, after a program has imported them.

    Args:
        log: gets numbers by name.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.hooks = [ImportHook(name, self._lightning(name)) for name in LIGHTNING]
        self.hooks.append(ImportHook(TRANSFORMERS, self._transformers))
        self._wrapped: list[tuple[type, Any, Any]] = []

    def start(self) -> None:
        """Wait for the trainers."""
        for hook in self.hooks:
            hook.start()

    def stop(self) -> None:
        """Restore the methods of the trainers; a method that the program has replaced meanwhile stays in place."""
        for hook in self.hooks:
            hook.stop()
        for owner, original, ours in self._wrapped:
            if vars(owner).get("log") is ours:
                owner.log = original  # type: ignore[attr-defined]  # the original function, saved above
        self._wrapped.clear()

    def _lightning(self, name: str) -> Callable[[], None]:
        return lambda: self._wrap(name, "LightningModule", lambda name, value, *_, **__: {name: value})

    def _transformers(self) -> None:
        self._wrap(TRANSFORMERS, "Trainer", lambda logs, *_, **__: logs)

    def _wrap(self, module: str, name: str, values: Callable[..., Mapping[str, Any]]) -> None:
        """Wrap a class's method `log`, so that its values are passed on once it has returned."""
        owner = getattr(sys.modules[module], name, None)
        original = vars(owner).get("log") if isinstance(owner, type) else None
        if not isinstance(owner, type) or original is None:
            return

        @wraps(original)
        def log(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(trainer, *args, **kwargs)
            self._hand_on(lambda: values(*args, **kwargs))
            return result

        owner.log = log  # type: ignore[attr-defined]  # restored by `stop`
        self._wrapped.append((owner, original, log))

    def _hand_on(self, values: Callable[[], Mapping[str, Any]]) -> None:
        try:
            found = {OTHER_NAMES.get(name, name): value for name, value in values().items() if _is_number(value)}
        except (TypeError, AttributeError):  # the signature differs from that of the tested releases
            return
        self.log(found)


def _is_number(value: Any) -> bool:
    if isinstance(value, int | float):
        return not isinstance(value, bool)
    return callable(getattr(value, "numel", None)) and value.numel() == 1
