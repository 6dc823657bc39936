"""Small sinks take small captures only: what would be too much for one is refused before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from probes.component import Sink
from probes.plan.binding import Binding
from probes.plan.draft import Draft


def refuse_large_captures(drafts: Iterable[Draft], bindings: Iterable[Binding]) -> None:
    """Refuse probes that send more to a small sink than it takes; where only a run can tell, the sink is given up then."""
    by_name = {draft.name: draft for draft in drafts}
    told = set()
    for binding in bindings:
        draft = by_name[binding.name]
        for name, sink in _small(draft).items():
            found = None if (binding.name, name) in told else _too_much(binding, sink)
            if found:
                told.add((binding.name, name))
                hint = "add a transform that makes less of it, such as `stats` or `norm`" + _elsewhere(draft, name)
                draft.refuse(
                    "too-large-for-sink", f"sink `{name}` takes {sink.largest} elements at most, and {found}", hint, *_place(draft, name)
                )


def _small(draft: Draft) -> dict[str, Sink]:
    declared = draft.loaded.spec.sinks
    chosen = draft.probe.sinks or declared
    return {name: declared[name] for name in chosen if name in declared and draft.probe.edit is None and declared[name].largest is not None}


def _too_much(binding: Binding, sink: Sink) -> str:
    """Why a capture does not fit, as far as it is known."""
    sizes = binding.stored.shape
    least = prod(size for size in sizes if size is not None) if sizes is not None else 0
    if sink.largest is not None and least > sink.largest:
        return f"`{binding.value}` of `{binding.target}` has {least}" + (" or more" if sizes is not None and None in sizes else "")
    raw = sizes is None and not binding.probe.transforms
    return f"nothing makes `{binding.value}` of `{binding.target}` small" if raw else ""


def _elsewhere(draft: Draft, name: str) -> str:
    others = [other for other in draft.loaded.spec.sinks if other != name and draft.loaded.spec.sinks[other].largest is None]
    return f", or write `sinks: [{others[0]}]`" if others else ""


def _place(draft: Draft, name: str) -> tuple[str | int, ...]:
    return ("sinks", draft.probe.sinks.index(name)) if name in draft.probe.sinks else ()
