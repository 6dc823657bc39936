"""What waits for a trigger has to fit into memory: a ring that is too large is refused before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probes.errors import Problem
from probes.plan.binding import Binding
from probes.plan.draft import Draft
from probes.spec import LoadedSpec


def refuse_large_rings(drafts: Sequence[Draft], bindings: Sequence[Binding]) -> None:
    """Refuse triggers that keep more than `limits.buffer_bytes`, as far as sizes are known; what only a run can tell makes room then."""
    per_step = {
        draft.name: sum(binding.stored.nbytes or 0 for binding in bindings if binding.name == draft.name)
        for draft in drafts
        if draft.probe.when.trigger is not None
    }
    problem = too_large(drafts[0].loaded, per_step) if per_step else None
    if problem is not None:
        drafts[0].problems.append(problem)


def held_bytes(loaded: LoadedSpec, per_step: Mapping[str, int]) -> dict[str, int]:
    """Most bytes that wait for a trigger, by probe.

    Args:
        loaded: the spec.
        per_step: bytes of one step, of each probe with a trigger.
    """
    triggers = {name: loaded.spec.probes[name].when.trigger for name in per_step}
    return {name: per_step[name] * (trigger.before + 1) for name, trigger in triggers.items() if trigger is not None}


def too_large(loaded: LoadedSpec, per_step: Mapping[str, int]) -> Problem | None:
    """Why what waits does not fit into `limits.buffer_bytes`; None where it does."""
    room, held = loaded.spec.limits.buffer_bytes, held_bytes(loaded, per_step)
    needed = sum(held.values())
    if room is None or needed <= room:
        return None
    name = max(held, key=lambda probe: held[probe])
    steps = held[name] // per_step[name]
    fitting = (room - (needed - held[name])) // per_step[name] - 1
    lower = f"write `before: {fitting}`" if fitting >= 0 else "add a transform that makes less of the values, such as `stats`"
    return loaded.locate(("probes", name, "when", "trigger", "before")).at(
        code="ring-too-large",
        message=f"probe `{name}`: `before: {steps - 1}` keeps {steps} steps in memory; all that waits for a trigger takes {needed:,} bytes "
        f"at least, and `limits.buffer_bytes` is {room:,}",
        hint=f"{lower}, or raise `limits.buffer_bytes`",
    )
