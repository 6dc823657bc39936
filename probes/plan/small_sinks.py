"""Sinks take captures up to their limit: a probe with larger ones is refused before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from probes.plan.binding import Binding
from probes.plan.draft import Draft


def refuse_large_captures(drafts: Iterable[Draft], bindings: Iterable[Binding]) -> None:
    """Refuse probes with captures larger than a sink takes; where only a run can tell, the sink is disabled then."""
    by_name = {draft.name: draft for draft in drafts}
    refused = set()
    for binding in bindings:
        draft = by_name[binding.name]
        for name, sink in draft.loaded.spec.sinks_of(draft.name).items():
            limit = sink.most_elements()
            found = _too_large(binding, limit) if limit is not None and (binding.name, name) not in refused else ""
            if found:
                refused.add((binding.name, name))
                hint = "add a transform that makes it smaller, such as `stats` or `norm`" + _alternative(draft)
                draft.refuse("too-large-for-sink", f"sink `{name}` takes at most {limit} elements, and {found}", hint, *_place(draft, name))


def _too_large(binding: Binding, limit: int) -> str:
    """Why a capture does not fit, as far as its size is known; empty where it may fit."""
    sizes = binding.stored.shape
    least = prod(size for size in sizes if size is not None) if sizes is not None else 0
    if least > limit:
        return f"`{binding.value}` of `{binding.target}` has {least}" + (" or more" if sizes is not None and None in sizes else "")
    raw = sizes is None and not binding.probe.transforms
    return f"no transform makes `{binding.value}` of `{binding.target}` small" if raw else ""


def _alternative(draft: Draft) -> str:
    """The way out where the spec declares an entry of `sinks` without a limit."""
    spec = draft.loaded.spec
    others = [name for name in spec.sinks if name not in spec.reading_sinks or spec.reading_sinks[name].most_elements() is None]
    return f", or write `sinks: [{others[0]}]`" if others else ""


def _place(draft: Draft, name: str) -> tuple[str | int, ...]:
    return ("sinks", draft.probe.sinks.index(name)) if name in draft.probe.sinks else ()
