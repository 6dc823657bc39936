"""A callback for Lightning: `Trainer(callbacks=[LightningProbes("probe.yaml", out="runs/a")])`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from probes.integrations.followed_epochs import TrainerFollower
from probes.optional_package import import_optional

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""Lightning under either of its two names; the name that the program has imported counts."""


def _package() -> str:
    imported = [name for name in PACKAGES if name in sys.modules]
    installed = [name for name in PACKAGES if find_spec(name.partition(".")[0]) is not None]
    return next(iter([*imported, *installed, PACKAGES[0]]))


_LIBRARY: Any = import_optional(_package(), "lightning", "`LightningProbes`")
_CALLBACK: Any = _LIBRARY.Callback


class LightningProbes(TrainerFollower, _CALLBACK):  # type: ignore[misc]  # its base is of a package that may be absent when types are checked
    """Captures while Lightning trains: each epoch of the trainer is an epoch of the run, its validation belongs to it.

    The probes are attached to the LightningModule, so paths are as in its `named_modules()`. The sanity check of the validation is
    not captured. When Lightning continues from a checkpoint, give `resume=True`: the run continues the epoch of the trainer.

    Args:
        spec: path of a spec, `preset:NAME`, a mapping or a Spec.
        out: the run directory; by default `runs/<name>/<run-id>`.
        options: further arguments of `probes.attach`: `resume`, `overrides`, `vars`, `tags`, `allow_plugins` and others.
    """

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Listen to loaders from here on: Lightning begins the first pass before `on_train_start`."""
        if stage == "fit":
            self.epochs.expect()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach the probes."""
        self.epochs.begin(pl_module)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the epoch of the trainer."""
        self.epochs.enter(trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Open the epoch if Lightning continues in its middle: it then reports no begin, and the index of its first batch is not 0."""
        fixed = pl_module.automatic_optimization and not any(
            isinstance(one, _LIBRARY.callbacks.GradientAccumulationScheduler) for one in trainer.callbacks
        )
        self.epochs.batch_begins(trainer.current_epoch, batch_idx, trainer.accumulate_grad_batches if fixed else None)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Note whether Lightning stops before the last batch."""
        if not trainer.is_last_batch:
            self.epochs.skips_batches()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Close the last epoch with its validation, and seal."""
        self.epochs.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close the run; its open epoch is not complete."""
        self.epochs.end(exception)
