"""What a file says of its epoch at the end."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from probes.provenance.collect import generators, weights_digest
from probes.tensors import NotCapturable

if TYPE_CHECKING:
    from probes.runner.keeper import Keeper


def closing(keeper: Keeper, epoch: int) -> dict[str, Any]:
    """Steps of every phase, the books of every binding, the state of the random generators, and the weights where the spec says so."""
    bindings = [
        {"probe": binding.name, "target": binding.target, "value": binding.value, **account.as_dict()}
        for binding, account in zip(keeper.plan.bindings, keeper.accounts[epoch], strict=True)
    ]
    found: dict[str, Any] = {
        "steps": dict(keeper.timeline.counts),
        "accounts": bindings,
        "random": generators().model_dump(mode="json"),
    }
    if keeper.watch.triggers:
        found["trigger"] = keeper.watch.end_epoch(epoch)
    if keeper.plan.loaded.spec.provenance.weights == "epochs":
        with suppress(NotCapturable):  # a parameter that has no bytes, such as a lazy one that was never called
            found["weights"] = weights_digest(keeper.live.trees)
    return found
