"""Hooks that PyTorch has once for the process, on the steps of all optimizers and on what is assigned to all modules."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from threading import RLock
from typing import Any

from torch.nn.modules.module import register_module_module_registration_hook, register_module_parameter_registration_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from probes.hooks.capture.tracing import runs_eagerly

Listener = Callable[..., None]

changing_listeners = RLock()
"""Held while the listeners of a watch change: runs of several threads begin and end at the same time."""

_free = changing_listeners.release
os.register_at_fork(before=changing_listeners.acquire, after_in_parent=_free, after_in_child=_free)


class ProcessHook:
    """One hook that passes each call on to all who listen.

    PyTorch iterates over the table of these hooks while it calls them. A hook that is registered or removed meanwhile in another thread
    ends that optimizer's step with `OrderedDict mutated during iteration`. So the hook is registered for the first listener, and removed
    with the last one only where no other thread exists that may be in such a step; it does nothing where nobody listens.

    Args:
        register: the function of PyTorch that registers the hook.
    """

    def __init__(self, register: Callable[[Any], Any]) -> None:
        self._register = register
        self._listeners: tuple[Listener, ...] = ()
        self._handle: Any = None

    def add(self, listener: Listener) -> Callable[[], None]:
        """Begin to listen.

        Args:
            listener: gets what PyTorch gives to the hook; PyTorch's own frame is the second around that of the listener.

        Returns:
            What stops listening.
        """
        with changing_listeners:
            self._listeners = (*self._listeners, listener)
            if self._handle is None:
                self._handle = self._register(self._called)

        def stop() -> None:
            self._remove(listener)

        return stop

    def _remove(self, listener: Listener) -> None:
        with changing_listeners:
            self._listeners = tuple([one for one in self._listeners if one != listener])
            if not self._listeners and self._handle is not None and threading.active_count() == 1:
                self._handle.remove()
                self._handle = None

    @runs_eagerly
    def _called(self, *args: Any) -> None:
        for listener in self._listeners:
            listener(*args)


optimizer_begins = ProcessHook(register_optimizer_step_pre_hook)
optimizer_stepped = ProcessHook(register_optimizer_step_post_hook)
module_assigned = ProcessHook(register_module_module_registration_hook)
parameter_assigned = ProcessHook(register_module_parameter_registration_hook)
