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

Log = Callable[[Mapping[str, Any], str], None]


class FrameworkLogs:
    """Passes on values that trainers log, after a program has imported them.

    Args:
        log: gets numbers by name, and the phase that they are of if it is known.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.hooks = [ImportHook(name, self._lightning(name)) for name in LIGHTNING]
        self.hooks.append(ImportHook(TRANSFORMERS, self._transformers))
        self._phase = ""
        self._wrapped: list[tuple[type, str, Any, Any]] = []

    def start(self) -> None:
        """Wait for the trainers."""
        for hook in self.hooks:
            hook.start()

    def stop(self) -> None:
        """Restore the methods of the trainers; a method that the program has replaced meanwhile stays in place."""
        for hook in self.hooks:
            hook.stop()
        for owner, name, original, ours in self._wrapped:
            if vars(owner).get(name) is ours:
                setattr(owner, name, original)
        self._wrapped.clear()

    def _lightning(self, name: str) -> Callable[[], None]:
        return lambda: self._wrap_log(name, "LightningModule", lambda name, value, *_, **__: {name: value})

    def _transformers(self) -> None:
        self._wrap_log(TRANSFORMERS, "Trainer", lambda logs, *_, **__: logs)
        self._wrap(TRANSFORMERS, "Trainer", "evaluate", self._evaluation)

    def _wrap_log(self, module: str, name: str, values: Callable[..., Mapping[str, Any]]) -> None:
        """Wrap a class's method `log`, so that its values are passed on once it has returned."""

        def log(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._hand_on(lambda: values(*args[1:], **kwargs))
            return result

        self._wrap(module, name, "log", log)

    def _evaluation(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Evaluate; the Trainer logs the results when the evaluation's last batch is over, perhaps within a training step."""
        before, self._phase = self._phase, "eval"
        try:
            return original(*args, **kwargs)
        finally:
            self._phase = before

    def _wrap(self, module: str, name: str, method: str, around: Callable[..., Any]) -> None:
        """Replace a method of a class by a function that gets the original and its arguments."""
        owner = getattr(sys.modules[module], name, None)
        original = vars(owner).get(method) if isinstance(owner, type) else None
        if not isinstance(owner, type) or original is None:
            return

        @wraps(original)
        def ours(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        setattr(owner, method, ours)
        self._wrapped.append((owner, method, original, ours))

    def _hand_on(self, values: Callable[[], Mapping[str, Any]]) -> None:
        try:
            found = {OTHER_NAMES.get(name, name): value for name, value in values().items() if _is_number(value)}
        except (TypeError, AttributeError):  # the signature differs from that of the tested releases
            return
        self.log(found, self._phase)


def _is_number(value: Any) -> bool:
    if isinstance(value, int | float):
        return not isinstance(value, bool)
    return callable(getattr(value, "numel", None)) and value.numel() == 1
