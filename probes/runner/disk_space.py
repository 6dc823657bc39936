"""Whether the disk has space for a run: checked before step 0, and again when the sizes are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probes.errors import StorageError
from probes.hooks.capture.account import Account
from probes.host import free_bytes
from probes.plan import Binding, Plan
from probes.signature import size

TWICE = 2  # the journal of an epoch and its sealed file exist at the same time
OVERHEAD = 1 << 20  # manifest, ledger and the files' own metadata


class DiskSpace:
    """The least space that an epoch needs, as far as it is known.

    A binding is counted for its due steps of phase `train` where the epoch's length is known (`clock.epoch_steps`), and
    else for one step.

    Args:
        plan: the bindings.
        directory: the run directory, which need not exist yet.
    """

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.directory = directory
        self.asked = False

    def before(self) -> None:
        """Check before step 0, when shapes that only a forward shows are not known yet.

        Raises:
            StorageError: there is too little disk space for the known sizes.
        """
        self._ask([binding.stored.nbytes or 0 for binding in self.plan.bindings])

    def after(self, accounts: Sequence[Account]) -> None:
        """Check again, once, when a step has shown the sizes.

        Args:
            accounts: the counters of the bindings.

        Raises:
            StorageError: there is too little disk space for an epoch of such steps.
        """
        self.asked = True
        self._ask([account.nbytes for account in accounts])

    def _ask(self, sizes: Sequence[int]) -> None:
        spec = self.plan.loaded.spec
        steps = spec.clock.epoch_steps
        wanted = sum(nbytes * due(binding, steps) for binding, nbytes in zip(self.plan.bindings, sizes, strict=True))
        if spec.limits.bytes_per_epoch is not None:
            wanted = min(wanted, spec.limits.bytes_per_epoch)
        needed, free = TWICE * wanted + OVERHEAD, free_bytes(self.directory)
        if needed <= free:
            return
        length = f"an epoch of {steps} steps" if steps else "one step"
        raise StorageError(
            f"'{self.directory}' has too little disk space: {length} needs {size(needed)} (journal and sealed file together), "
            f"and {size(free)} are free; capture less (`when`, `transforms`, `limits.bytes_per_epoch`), or choose another disk with `out`"
        )


def due(binding: Binding, steps: int | None) -> int:
    """The number of an epoch's first `steps` steps in which a binding is due; at most one if their number is not known."""
    wanted = binding.probe.when.steps
    if steps is None:
        return 1
    return steps if wanted is None else wanted.count(steps)
