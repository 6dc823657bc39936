"""A callback for the Trainer of transformers: `Trainer(..., callbacks=[TrainerProbes("probe.yaml", out="runs/a")])`."""

from __future__ import annotations

from typing import Any

from probes.integrations.followed_epochs import TrainerFollower
from probes.optional_package import import_optional

_CALLBACK: Any = import_optional("transformers", "transformers", "`TrainerProbes`").TrainerCallback


class TrainerProbes(TrainerFollower, _CALLBACK):  # type: ignore[misc]  # its base is of a package that may be absent when types are checked
    """Captures while a Trainer trains: each of its epochs is an epoch of the run, with the evaluation that follows it.

    The probes are attached to the model that the Trainer was given. When the Trainer continues from a checkpoint, give `resume=True`.
    The Trainer reports no exception to its callbacks: after one, call `run.close(error)`, or the epoch stays in its journal, which
    can be read, and which `probes recover` seals.

    Args:
        spec: path of a spec, `preset:NAME`, a mapping or a Spec.
        out: the run directory; by default `runs/<name>/<run-id>`.
        options: further arguments of `probes.attach`: `resume`, `overrides`, `vars`, `tags`, `allow_plugins` and others.
    """

    _number: int | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        """Attach the probes."""
        self._number = None
        self.epochs.begin(found["model"])

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        """Open the epoch; the evaluation of the previous epoch is over now.

        The Trainer tells where a training begins; of a stream without a length, it does not know how far its passes are.
        """
        self._number = int(state.epoch or 0) if self._number is None else self._number + 1
        skipped = _batches(state, found.get("train_dataloader")) if _within(state) and not args.ignore_data_skip else 0
        self.epochs.enter(self._number, skipped, getattr(args, "gradient_accumulation_steps", None))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        """Note whether the Trainer stops before the last batch."""
        if _within(state) and (control.should_training_stop or control.should_epoch_stop):
            self.epochs.skips_batches()

    def on_train_end(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        """Close the last epoch, and seal."""
        self.epochs.end()


def _batches(state: Any, loader: Any) -> int | None:
    """The batches of a pass that the Trainer has used; None if the loader has no length."""
    try:
        return round(float(state.epoch) % 1 * len(loader))
    except TypeError:
        return None


def _within(state: Any) -> bool:
    """Whether the Trainer is in the middle of a pass over its data."""
    return float(state.epoch or 0) % 1 > 0
