"""Hooks that PyTorch has once for the process, on the steps of all optimizers and on what is assigned to all modules."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from threading import RLock
from types import CodeType, FrameType
from typing import Any

from torch.nn.modules.module import register_module_module_registration_hook, register_module_parameter_registration_hook
from torch.optim import Optimizer
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
    with the last one only where no other thread exists that may be in such a step, and this one is in none; it does nothing where
    nobody listens.

    Args:
        register: the function of PyTorch that registers the hook.
        iterates: whether PyTorch may iterate over the table on this thread now.
    """

    def __init__(self, register: Callable[[Any], Any], iterates: Callable[[], bool] = lambda: False) -> None:
        self._register = register
        self._iterates = iterates
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
            unused = not self._listeners and self._handle is not None
            if unused and threading.active_count() == 1 and not self._iterates():
                self._handle.remove()
                self._handle = None

    @runs_eagerly
    def _called(self, *args: Any) -> None:
        for listener in self._listeners:
            if listener in self._listeners:  # one before it may have removed it
                listener(*args)


class TraceableProcessHook(ProcessHook):
    """The same for a hook that dynamo traces with the code that PyTorch calls it in; each listener says itself what it does there."""

    def _called(self, *args: Any) -> None:
        for listener in self._listeners:
            listener(*args)


STEP: CodeType = Optimizer.profile_hook_step(lambda: None).__code__
"""The code of PyTorch around every `step` of an optimizer, which runs the hooks."""


def is_in_a_step() -> bool:
    """Whether this thread runs a step of an optimizer, or a hook of one."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is STEP:
            return True
        frame = frame.f_back
    return False


optimizer_begins = ProcessHook(register_optimizer_step_pre_hook, is_in_a_step)
optimizer_stepped = ProcessHook(register_optimizer_step_post_hook, is_in_a_step)
module_assigned = TraceableProcessHook(register_module_module_registration_hook)
parameter_assigned = TraceableProcessHook(register_module_parameter_registration_hook)
