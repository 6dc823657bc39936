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

    def on_train_begin(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        """Attach the probes."""
        self.epochs.begin(found["model"])

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        """Open the epoch; the evaluation of the previous epoch is over now."""
        self.epochs.enter(int(state.epoch or 0))

    def on_train_end(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        """Close the last epoch, and seal."""
        self.epochs.end()
