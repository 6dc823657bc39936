"""What waits for a trigger has to fit into memory: a ring that is too large is refused before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from probes.plan.binding import Binding
from probes.plan.draft import Draft


def refuse_large_rings(drafts: Sequence[Draft], bindings: Sequence[Binding]) -> None:
    """Refuse triggers that keep more than `limits.buffer_bytes`, as far as sizes are known; what only a run can tell makes room then."""
    waiting = [(draft, trigger) for draft in drafts if (trigger := draft.probe.when.trigger) is not None]
    if not waiting:
        return
    room = waiting[0][0].loaded.spec.limits.buffer_bytes
    steps = {draft.name: sum(binding.stored.nbytes or 0 for binding in bindings if binding.name == draft.name) for draft, _ in waiting}
    needed = sum(steps[draft.name] * (trigger.before + 1) for draft, trigger in waiting)
    if room is None or needed <= room:
        return
    draft, trigger = max(waiting, key=lambda one: steps[one[0].name] * (one[1].before + 1))
    rest = room - (needed - steps[draft.name] * (trigger.before + 1))
    fitting = rest // steps[draft.name] - 1
    lower = f"write `before: {fitting}`" if fitting >= 0 else "add a transform that makes less of the values, such as `stats`"
    draft.refuse(
        "ring-too-large",
        f"`before: {trigger.before}` keeps {trigger.before + 1} steps in memory; all that waits for a trigger takes {needed:,} bytes at "
        f"least, and `limits.buffer_bytes` is {room:,}",
        f"{lower}, or raise `limits.buffer_bytes`",
        "when",
        "trigger",
        "before",
    )
