"""Handlers for Ignite: `IgniteProbes("probe.yaml", out="runs/a").attach(trainer, model)`."""

from __future__ import annotations

from typing import Any

from torch.nn import Module
from torch.utils.data import DataLoader

from probes.integrations.followed_epochs import TrainerFollower
from probes.optional_package import import_optional

_EVENTS: Any = import_optional("ignite.engine", "ignite", "`IgniteProbes`").Events


class IgniteProbes(TrainerFollower):
    """Captures while an engine of Ignite trains: each of its epochs is an epoch of the run, with the evaluation that follows it.

    An evaluator that the trainer starts at the end of an epoch belongs to that epoch. Ignite counts epochs from 1, the run from 0. When the
    trainer continues from a checkpoint (`trainer.load_state_dict`), give `resume=True`: the run continues the epoch of the trainer.

    Args:
        spec: path of a spec, `preset:NAME`, a mapping or a Spec.
        out: the run directory; by default `runs/<name>/<run-id>`.
        options: further arguments of `probes.attach`: `resume`, `overrides`, `vars`, `tags`, `allow_plugins` and others.
    """

    _before = 0

    def attach(self, trainer: Any, model: Module) -> IgniteProbes:
        """Follow a trainer; the probes are attached to the model when it starts.

        Args:
            trainer: the `ignite.engine.Engine` that trains.
            model: the model, whose paths are as in its `named_modules()`.
        """
        trainer.add_event_handler(_EVENTS.STARTED, lambda: self.epochs.begin(model))
        trainer.add_event_handler(_EVENTS.EPOCH_STARTED, self._epoch_started)
        for stopped in (_EVENTS.TERMINATE, _EVENTS.TERMINATE_SINGLE_EPOCH):
            trainer.add_event_handler(stopped, lambda *_, **__: self._stopped(trainer))
        trainer.add_event_handler(_EVENTS.COMPLETED, lambda: self.epochs.end())
        trainer.add_event_handler(_EVENTS.EXCEPTION_RAISED, self._raised)
        return self

    def _epoch_started(self, engine: Any) -> None:
        """Open the epoch of the trainer; if it begins in the middle, Ignite makes its remaining iterations.

        The batches of a DataLoader are steps if the spec says so; those of another iterable are not seen.
        """
        self._before = engine.state.iteration
        skipped = self._before % (engine.state.epoch_length or 1)
        self.epochs.enter(engine.state.epoch - 1, skipped if isinstance(engine.state.dataloader, DataLoader) or not skipped else None)

    def _stopped(self, engine: Any) -> None:
        """Note whether the trainer stops before the last batch; it may also stop when an epoch is complete."""
        length = engine.state.epoch_length
        if length is None or engine.state.iteration - self._before < length:
            self.epochs.skips_batches()
        if engine.should_terminate == "skip_completed":  # then the engine fires no event at its end
            self.epochs.end()

    def _raised(self, error: BaseException) -> None:
        """Close the run; its open epoch is not complete.

        Raises:
            BaseException: the error itself: Ignite drops an exception that has a handler.
        """
        self.epochs.end(error)
        raise error
