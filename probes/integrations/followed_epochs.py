"""A run whose epochs follow those of a trainer."""

from __future__ import annotations

import os
from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Any

from torch.nn import Module

from probes.errors import RunError
from probes.integrations.own_frames import without_own_frames
from probes.runner.attach import attach
from probes.runner.clock.open_epoch import LEFT, MIDDLE
from probes.runner.clock.run_clock import RunClock
from probes.runner.run import Run
from probes.runner.watch.loader_watch import loader_watch
from probes.runner.watch.watched_pass import FollowedLoop


class EarlyListener:
    """Listens to loaders before there is a run: a pass that begins meanwhile is reported to the run when that begins to listen."""

    def pass_begins(self, key: Hashable, loader: Hashable, *, endless: bool, skipped: int) -> None:
        """No effect."""

    def batch_pulled(self, key: Hashable, *, grad: bool, last: bool, before: bool) -> None:
        """No effect."""

    def pass_exhausted(self, key: Hashable) -> None:
        """No effect."""

    def pass_deleted(self, key: Hashable) -> None:
        """No effect."""

    def loader_deleted(self, loader: Hashable) -> None:
        """No effect."""


class FollowedEpochs:
    """Attaches probes when a training begins, and opens and closes epochs with the trainer.

    Args:
        spec: path of a spec, `preset:NAME`, a mapping or a Spec.
        out: the run directory; by default `runs/<name>/<run-id>`.
        options: further arguments of `probes.attach`, such as `resume`.

    Attributes:
        run: the run, once the training has begun.
    """

    def __init__(self, spec: Any, out: str | os.PathLike[str] | None, options: dict[str, Any]) -> None:
        self.spec = spec
        self.out = out
        self.options = options
        self.run: Run | None = None
        self._epoch: AbstractContextManager[int] | None = None
        self._partial = ""
        self._begins = True
        self._early: FollowedLoop | None = None

    def expect(self) -> None:
        """The trainer is about to begin: it may make the iterator of its first epoch before it reports that the training begins."""
        self._stop_expecting()
        self._early = FollowedLoop(EarlyListener())
        loader_watch.add(self._early)

    def _stop_expecting(self) -> None:
        if self._early is not None:
            loader_watch.remove(self._early)
            self._early = None

    @without_own_frames
    def begin(self, model: Module) -> None:
        """Attach the probes to a model.

        A run that is still open is closed first: a trainer that begins again after a failure, such as one that looks for a batch size that
        fits into memory, reports no end of its first attempt.

        Raises:
            PlanError: the spec does not fit the model.
            StorageError: the directory cannot be used.
        """
        self._close(RunError("the trainer began again"))
        self._begins = True
        self.run = attach(model, self.spec, self.out, **self.options)
        self.run.start()
        self._stop_expecting()

    @property
    def is_open(self) -> bool:
        """Whether an epoch of the trainer is open."""
        return self._epoch is not None

    @without_own_frames
    def enter(self, epoch: int, skipped: int | None = 0, per_step: int | None = None) -> None:
        """Close the epoch that is open, and open one.

        Args:
            epoch: its number.
            skipped: batches at its beginning that the trainer leaves out; None if there are some, and their number is not known. Only the
                first epoch of a training begins in the middle.
            per_step: batches of an optimizer step, if the trainer determines it.
        """
        if self.run is not None:
            self.leave()
            middle = self._begins and skipped != 0
            first_step = _first_step(self.run.engine.clock, skipped, per_step) if middle else 0
            self._partial = MIDDLE if middle and not first_step else ""
            self._epoch = self.run.epoch(epoch, first_step)
            self._epoch.__enter__()

    def batch_begins(self, epoch: int, index: int, per_step: int | None) -> None:
        """A batch begins; a trainer that continues in the middle of an epoch may report no begin of that epoch.

        Args:
            epoch: the number of the epoch.
            index: that of the batch in it.
            per_step: batches of an optimizer step, if the trainer determines it.
        """
        if self._begins and index and self.is_open:
            self._partial = MIDDLE
        elif self._begins and index:
            self.enter(epoch, index, per_step)
        self._begins = False

    def skips_batches(self) -> None:
        """The trainer does not use all batches of the open epoch, which is thus not complete."""
        self._partial = self._partial or LEFT

    def leave(self) -> None:
        """Close the open epoch, if there is one."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None and self.run is not None:
            self._begins = False
            if self._partial:
                self.run.engine.clock.loop_raised(self._partial)
            epoch.__exit__(None, None, None)

    @without_own_frames
    def end(self, error: BaseException | None = None) -> None:
        """Close the run; an epoch that ended with an exception is not complete.

        Raises:
            RunError: the training ended well, but the spec was not satisfied.
        """
        try:
            if error is None:
                self.leave()
        except BaseException as failure:  # a rule that stops the training, or a failed probe; raised again
            self._close(failure)
            raise
        self._stop_expecting()
        self._close(error)

    def _close(self, error: BaseException | None) -> None:
        """Close the run, if there is one; one that is closed stays so."""
        self._epoch = None
        if self.run is not None:
            self.run.close(error)


def _first_step(clock: RunClock, skipped: int | None, per_step: int | None) -> int:
    """The number of the first step of an epoch that begins in the middle; 0 if it is not known, or if calls have opened the epoch."""
    batches = {"batch": 1, "optimizer": per_step, "update": per_step}.get(clock.rule)
    return skipped // batches if skipped and batches and not skipped % batches and clock.epoch is None else 0


class TrainerFollower:
    """Captures while a trainer trains.

    Args:
        spec: path of a spec, `preset:NAME`, a mapping or a Spec.
        out: the run directory; by default `runs/<name>/<run-id>`.
        options: further arguments of `probes.attach`: `resume`, `overrides`, `vars`, `tags`, `allow_plugins` and others.
    """

    def __init__(self, spec: Any, out: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__()
        self.epochs = FollowedEpochs(spec, out, options)

    @property
    def run(self) -> Run | None:
        """The run, once the training has begun; `run.directory` and `run.summary()` are there after it, too."""
        return self.epochs.run
