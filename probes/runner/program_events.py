"""Events of a program for the clock: calls of its model, batches, optimizer steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.nn import Module
from torch.optim import Optimizer

from probes.errors import ProbesError
from probes.hooks.capture import compiled
from probes.hooks.capture.tracing import breaks_graph, is_in_function, is_traced, is_transformed
from probes.plan.tree import Node, Tree
from probes.runner.engine import Engine
from probes.runner.program_frames import is_part_of_a_step
from probes.runner.watch.backward_watch import backward_watch
from probes.runner.watch.call_watch import NO_NUMBERS, CallNumbers, call_watch
from probes.runner.watch.grad_scaler import scaler_watch
from probes.runner.watch.loader_watch import loader_watch
from probes.runner.watch.loop_values import LOSS
from probes.runner.watch.model_changes import ModelChanges
from probes.runner.watch.process_hooks import optimizer_begins, optimizer_stepped
from probes.runner.watch.watched_pass import FollowedLoop
from probes.tensors import graph_task, in_backward


class ProgramEvents:
    """Listens to the process's watches for one run, and tells its engine.

    Args:
        engine: the run.

    Attributes:
        raised: what was raised into the program.
        begun: whether the run was entered.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.clock = engine.clock
        self.failures = engine.failures
        self.triggers = engine.live.triggers
        self.begun = False
        self.raised: ProbesError | None = None
        self._changes = ModelChanges()
        self._loop = FollowedLoop(self)
        self._training: set[int] = set()  # the threads in which the model was called for training
        self._trees: list[Tree] = []
        self._probed = {binding.module for binding in engine.plan.bindings}
        self._ends: list[Callable[[], None]] = []  # each ends what it listens to; empty while it does not

    def start(self) -> None:
        """Begin to listen."""
        self.begun = True
        self.renew()
        self._changes.start()
        self.engine.epoch_listeners.append(self.renew)
        self.engine.collect = self.collect_compiled
        self._ends = [optimizer_stepped.add(self._optimizer_stepped)]
        if self.triggers is not None:
            self.triggers.listen(self._before_optimizer)
            self._ends.append(self.triggers.leave)
        if self.engine.live.optimized is not None:
            self._ends.append(optimizer_begins.add(self._optimizer_begins))
        if self._logs_by_itself and self.engine.logged.asks_for(LOSS):
            backward_watch.add(self)
            self._ends.append(partial(backward_watch.remove, self))
        scaler_watch.add(self)
        loader_watch.add(self._loop)
        call_watch.add(self)
        self._ends += [partial(scaler_watch.remove, self), partial(loader_watch.remove, self._loop), partial(call_watch.remove, self)]

    def stop(self) -> None:
        """Stop listening."""
        if not self._ends:
            return
        if self.renew in self.engine.epoch_listeners:
            self.engine.epoch_listeners.remove(self.renew)
        self.engine.writer.loaders = loader_watch.seen
        while self._ends:
            self._ends.pop()()
        self._changes.stop()

    def renew(self, *, keep: bool = False) -> None:
        """Look again at the model: its modules and its parameters may have been replaced.

        Args:
            keep: whether optimizers of parameters that were replaced still step the model, as they may within an epoch.
        """
        self._trees = list(self.engine.live.trees.values())
        self._changes.renew(self._trees, self._clock_trees, keep=keep)

    def _follow(self) -> None:
        """Put the hooks on what the program has assigned to the model, before the next call of it."""
        if not (self.engine.moment.calls or graph_task() != -1 or is_traced() or is_transformed()):
            self.engine.follow_model()
            self.renew(keep=self.clock.epoch is not None)

    @property
    def _clock_trees(self) -> Iterable[Tree]:
        name = self.engine.plan.loaded.spec.clock.model
        return [self.engine.live.trees[name]] if name else self._trees

    # Calls

    def call_enters(self, module: Module) -> CallNumbers | None:
        """A module is called; returns the numbering of the calls within it, if it is an outermost call into the model."""
        engine, thread = self.engine, get_ident()
        if thread in engine.moment.aside:
            return NO_NUMBERS
        if self._changes.found or engine.live.outdated:
            self._follow()
        found = self._find(module) if graph_task() == -1 else None  # a forward in a backward is a recompute
        if found is None:
            return None
        tree, node = found
        root, transformed = tree.root.module, is_transformed()
        if self._is_overlooked(root, transformed):
            self.clock.seen.transformed += transformed
            return None
        if transformed:
            return engine.look(phase_of(root), thread) or NO_NUMBERS
        if node is not tree.root and _has_no_parameters(node):
            at = engine.join(phase_of(root), thread)
            if at is None and node.path in self._probed:
                self.clock.seen.alone[node.path] += 1
            return at
        if self.halts:
            self.halt()
        grad = torch.is_grad_enabled() or (root.training and is_in_function())
        phase = "train" if grad and root.training else "eval"
        if phase == "train":
            self._training.add(thread)
            backward_watch.training.add(thread)
            if self._loop.thread != thread:
                loader_watch.follow(self._loop)
        if self._loop.gone:
            loader_watch.settle()
        fetched = loader_watch.fetched.get(thread) if self._loop.thread == thread else None
        if fetched is not None and fetched.passes:
            fed = any(one.phase == "train" for one in self.clock.passes.fresh)
            fetched.called(phase, loader_watch.listeners(thread), fed=fed)
        at = engine.enter(phase, thread, grad=grad)
        if engine.failures.first is not None:
            self._raise_within_call()
        return at or NO_NUMBERS

    def _raise_within_call(self) -> None:
        try:
            self.raise_due()
        except BaseException:  # whatever is due to be raised; raised again
            self.engine.leave(get_ident(), raised=True)
            raise

    def call_leaves(self, *, raised: bool) -> None:
        """The outermost call returns, or raises."""
        self.engine.leave(get_ident(), raised=raised)

    def ignores(self, module: Module) -> bool:
        """Whether a module is in none of the trees of the open epoch."""
        return self._find(module) is None

    def _find(self, module: Module) -> tuple[Tree, Node] | None:
        """The tree and the node of a module, or of one that torch.compile wraps; None if it belongs to no model of the run."""
        for tree in self._trees:
            node = tree.owners.get(id(module))
            if node is not None:
                return tree, node
        inner = getattr(module, "_orig_mod", None)  # the program may call a wrapper of the model
        return self._find(inner) if isinstance(inner, Module) else None

    def _is_overlooked(self, root: Module, transformed: bool) -> bool:
        """Whether a call is not part of the computation: it is traced, transformed without a named step, or a trainer's check.

        A call under a functorch transform is never counted; in a step that the loop names its values are taken if they can be.
        """
        if is_traced() or sanity_checking(root):
            return True
        return transformed and not any(step.item is not None for step in self.clock.steps.stack)

    def collect_compiled(self) -> None:
        """Count the trace of a compiled function as one outermost call: its calls of the model are not seen."""
        if not self.engine.moment.open and compiled.is_expected():
            self.engine.schedule.wait()
            self.engine.live.stay()
        if self.engine.live.waiting and not self.engine.moment.calls:
            root = next(iter(self._clock_trees)).root.module
            grad = torch.is_grad_enabled() or in_backward()
            self.engine.enter("train" if root.training and grad else "eval", get_ident(), grad=grad)
            self.engine.leave(get_ident(), raised=False)

    # Batches

    def pass_begins(self, key: Hashable, loader: Hashable, *, endless: bool, skipped: int) -> None:
        """A loader begins to be iterated over."""
        self.engine.hear(self.clock.pass_begins, key, loader, endless=endless, skipped=skipped)

    def batch_pulled(self, key: Hashable, *, grad: bool, last: bool, before: bool) -> None:
        """A batch was pulled; if that was before the model was known, the call that revealed the model gives the phase."""
        self.collect_compiled()
        call_watch.renew()
        root = next(iter(self._clock_trees)).root.module
        trains = root.training or (before and torch.is_grad_enabled())
        self.engine.hear(self.clock.batch_pulled, key, "train" if trains and grad else "eval", last=last)

    def pass_exhausted(self, key: Hashable) -> None:
        """A pass has no more batches."""
        self.collect_compiled()
        self.engine.hear(self.clock.pass_exhausted, key)

    def pass_deleted(self, key: Hashable) -> None:
        """The iterator of a pass was deleted."""
        self.engine.hear(self.clock.pass_deleted, key)

    def loader_deleted(self, loader: Hashable) -> None:
        """A loader was deleted."""
        self.engine.hear(self.clock.loader_deleted, loader)

    # Optimizers

    def owns(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer steps a parameter of the clock's model."""
        return self._changes.owns(optimizer)

    @breaks_graph
    def _before_optimizer(self, optimizer: Optimizer, *_args: object) -> None:
        if self._ends and self.owns(optimizer):
            self.halt()  # before values that are not finite reach the weights

    @breaks_graph
    def _optimizer_begins(self, optimizer: Optimizer, *_args: object) -> None:
        if get_ident() not in self.engine.moment.aside:
            self.engine.updating(optimizer, sys._getframe(2))

    @breaks_graph
    def _optimizer_stepped(self, optimizer: Optimizer, *_args: object) -> None:
        if is_part_of_a_step(optimizer, sys._getframe(2)):
            self.engine.updated_within(optimizer)
            return
        owned = self.owns(optimizer)
        call_watch.renew()
        if owned:
            loader_watch.optimizer_stepped(self._loop)
            self.collect_compiled()
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        self.engine.updated(held, optimizer, owned=owned)
        if self._logs_by_itself:
            self.engine.tell(self.engine.logged.stepped, optimizer)
        if owned:
            self.halt()

    @property
    def _logs_by_itself(self) -> bool:
        """Whether loss and optimizer settings are logged automatically: the program does not use the run."""
        return self.clock.automatic and bool(self.engine.logged.taps or self.engine.logged.labels)

    def backward_begins(self, loss: Tensor) -> None:
        """The program calls `backward` on a scalar."""
        thread = get_ident()
        of_another_model = thread in backward_watch.training and thread not in self._training
        if thread not in self.engine.moment.aside and not of_another_model:
            self.engine.tell(self.engine.logged.loss, loss)

    @breaks_graph
    def scaler_scaled(self, scaler: GradScaler, losses: Any) -> None:
        """The gradients of these losses are scaled."""
        scales = self.engine.live.scales
        if scales is not None:
            self.engine.moment.scales = scales
            self.engine.tell(scales.watch, scaler, losses)
        backward_watch.note_scale(scaler, losses)

    @breaks_graph
    def scaler_stepped(self, scaler: GradScaler, optimizer: Any, *, skipped: bool) -> None:
        """A step that a GradScaler skips is a step too."""
        if skipped and self.owns(optimizer):
            self.engine.updated(set(), owned=True, skipped=True)

    @breaks_graph
    def scaler_updated(self, scaler: GradScaler) -> None:
        """No effect on the clock."""

    # What ends the program

    @property
    def halts(self) -> bool:
        """Whether training has to stop, because a trigger or a rule says so."""
        return self.failures.halt is not None or (self.triggers is not None and self.triggers.halts)

    def halt(self) -> None:
        """End the open step and stop training, if it has to.

        Raises:
            Stopped: it does.
        """
        if self.halts and self._ends:
            self.engine.hear(self.clock.steps_end)
            if self.failures.halt is not None:
                raise self.failures.halt

    def raise_due(self) -> None:
        """Raise what went wrong in a hook, if the spec says `on_error: raise` or it is too early to continue without captures."""
        failure = self.engine.failures.due
        if failure is not None:
            self.engine.failures.first = None
            self.raised = failure
            raise failure


def phase_of(root: Module) -> str:
    """The phase of a call without a named phase: `train` if the model trains and gradients are on."""
    return "train" if root.training and (torch.is_grad_enabled() or is_in_function()) else "eval"


def sanity_checking(root: Module) -> bool:
    """Whether Lightning runs its sanity check of the validation loop; those calls belong to no epoch."""
    trainer = vars(root).get("_trainer")
    return trainer is not None and bool(getattr(trainer, "sanity_checking", False))


def _has_no_parameters(node: Node) -> bool:
    """Whether a module has no parameters, such as a loss or an activation: unless it is the root, its call is not a call of the model."""
    return next(node.module.parameters(), None) is None
