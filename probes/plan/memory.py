"""Which models have a memory that can be measured module by module."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch.nn import Module

from probes.plan.binding import Binding
from probes.plan.compiled import region
from probes.plan.draft import Draft

WANTED = ("memory_allocated", "max_memory_allocated", "reset_peak_memory_stats")


def device_of(model: Module) -> torch.device:
    """The device of the model's first parameter or buffer; the host where it has none."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def counters(device: torch.device) -> Any:
    """The module of torch that counts the memory of a device; None where there is none that does."""
    if device.type in ("cpu", "meta"):
        return None
    found = torch.get_device_module(device)
    return found if all(hasattr(found, name) for name in WANTED) else None


def refuse_without_counters(drafts: Iterable[Draft], bindings: Iterable[Binding]) -> None:
    """Refuse `memory` where no allocator counts it, and in compiled modules, of which it would see the whole graph."""
    by_name = {draft.name: draft for draft in drafts}
    told = set()
    for binding in bindings:
        if binding.root != "memory" or binding.name in told:
            continue
        draft = by_name[binding.name]
        device = device_of(draft.tree.model)
        place = ("values", draft.probe.values.index("memory"))
        told.add(binding.name)
        if counters(device) is None:
            message = f"`memory` is counted by the allocator of an accelerator, and the model is on `{device}`, whose memory nobody counts"
            draft.refuse("memory-not-counted", message, "move the model to its device before the probes are attached", *place)
        elif region(draft.tree, binding.module) is not None:
            message = f"`{binding.target}` is compiled, and in a graph no module has a memory of its own"
            draft.refuse("memory-not-counted", message, "attach before `torch.compile`, or leave the module out", *place)
        else:
            draft.note(
                "memory-peak", "the peak counter of the device, as `torch.cuda.max_memory_allocated` reads it, is reset by each call"
            )
