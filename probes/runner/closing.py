"""What a file says of its epoch at the end."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from probes.audit.provenance import generators, weights_digest
from probes.tensors import NotCapturable

if TYPE_CHECKING:
    from probes.runner.run import Run


def closing(run: Run, epoch: int) -> dict[str, Any]:
    """Steps of every phase, the books of every binding, the state of the random generators, and the weights where the spec says so."""
    bindings = [
        {"probe": binding.name, "target": binding.target, "value": binding.value, **account.as_dict()}
        for binding, account in zip(run.plan.bindings, run.accounts[epoch], strict=True)
    ]
    found: dict[str, Any] = {
        "steps": dict(run.timeline.counts),
        "accounts": bindings,
        "random": generators().model_dump(mode="json"),
    }
    if run.watch.triggers:
        found["trigger"] = run.watch.end_epoch(epoch)
    if run.plan.loaded.spec.provenance.weights == "epochs":
        with suppress(NotCapturable):  # a parameter that has no bytes, such as a lazy one that was never called
            found["weights"] = weights_digest(run.plan.trees)
    return found
