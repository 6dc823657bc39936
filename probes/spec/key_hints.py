"""The allowed keys of the parts of a spec, for hints."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from probes.component import Component
from probes.registry import component, kinds
from probes.spec.models import Defaults, Probe, Spec
from probes.spec.when import Condition, Trigger, When
from probes.spec.yaml.document import Path

FAMILIES = {"transforms": "transform", "edit": "edit", "sinks": "sink", "of": "transform"}
SINGLE = ("edit", "of")  # keys that hold one component, not several
HOOKS_MEANT = {
    "forward_pre": "write `pre-forward`",
    "forward-pre": "write `pre-forward`",
    "pre_forward": "write `pre-forward`",
    "full_backward": "write `backward`; it never uses a full backward hook",
}
"""Names of hooks in PyTorch and in other tools, and what to write instead."""

KEYS_MEANT = {
    "module": "modules",
    "layers": "modules",
    "value": "values",
    "tensor": "tensors",
    "transform": "transforms",
    "sink": "sinks",
    "edits": "allow_edits",
}
"""Keys of other tools and likely guesses, and the right keys."""

HOLDS = {
    "probes": dict,
    "defaults": dict,
    "sinks": dict,
    "models": dict,
    "rules": dict,
    "vars": dict,
    "limits": dict,
    "clock": dict,
    "when": dict,
    "where": dict,
    "trigger": dict,
    "epochs": dict,
    "steps": dict,
    "expect": dict,
    "edit": dict,
    "transforms": list,
}
"""The keys that hold keys, and what they hold; with any other content, the key may mean something else."""


def hint_for(name: str, data: Any, path: Path) -> str:
    """Advice for an unknown key.

    Args:
        name: the key.
        data: the whole spec as plain data.
        path: the part that holds the key.
    """
    part = part_at(data, path)
    known = keys_of(part)
    if part in (Probe, Defaults) and (name in keys_of(When) or f"{name}s" in keys_of(When)):
        return f"write it below `when`: `when: {{{name if name in keys_of(When) else f'{name}s'}: ...}}`"
    if part is Defaults and name in keys_of(Probe):
        return f"write it in each probe; `defaults` can have {', '.join(known)}"
    meant = _meant(name, known)
    if meant and KEYS_MEANT.get(name) == meant:
        return "write `allow_edits: true`" if meant == "allow_edits" else f"write `{meant}`, a list"
    if meant in (f"{name}s", name.removesuffix("s")):
        return f"write `{meant}`"
    return f"did you mean `{meant}`?" if meant else f"known: {', '.join(known)}" if known else ""


def meant_key(name: str, data: Any, path: Path) -> str:
    """The key that an unknown one probably means; empty if none is similar."""
    return _meant(name, keys_of(part_at(data, path)))


def misspelt(data: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """The unknown keys of a spec that probably mean one of `HOLDS`, and which; the outer ones first.

    Each part is read when the keys of the parts around it have been corrected.
    """
    for path, part in _parts(data):
        known = keys_of(part_at(data, path))
        for name in [name for name in part if name not in known]:
            meant = meant_key(str(name), data, path)
            if meant in HOLDS and meant not in part and isinstance(part[name], HOLDS[meant]):
                yield (*path, name), meant


def _parts(data: Any) -> Iterator[tuple[Path, dict[Any, Any]]]:
    """The parts of a spec that can have such keys."""
    yield (), data
    probes = data.get("probes")
    named = [(("probes", name), probe) for name, probe in probes.items()] if isinstance(probes, dict) else []
    for path, part in [*named, (("defaults",), data.get("defaults"))]:
        if isinstance(part, dict):
            yield path, part
            if isinstance(part.get("when"), dict):
                yield (*path, "when"), part["when"]


def _meant(name: str, known: list[str]) -> str:
    if KEYS_MEANT.get(name) in known:
        return KEYS_MEANT[name]
    plural = next((key for key in known if key in (f"{name}s", name.removesuffix("s"))), "")
    return plural or next(iter(get_close_matches(name, known, 1)), "")


def keys_of(part: type[BaseModel] | None) -> list[str]:
    """The keys of a part, sorted."""
    extra = ["extends", "vars"] if part is Spec else []
    return sorted([info.alias or name for name, info in part.model_fields.items()] + extra) if part else []


def part_at(data: Any, loc: tuple[Any, ...]) -> type[BaseModel] | None:
    """The class of the part of a spec at a location; None if there is none, or its kind is not known."""
    part: type[BaseModel] | None = Spec
    named = False  # whether the next word of the location is a user's name, as below `probes`
    for index, word in enumerate(loc):
        if part is None:
            return None
        if named or isinstance(word, int):
            named = False
            continue
        if word in FAMILIES and part in (Spec, Probe, Condition, Trigger) and index + 1 < len(loc) + (word in SINGLE):
            depth = index + 1 if word in SINGLE else index + 2
            part = _component_at(data, loc[:depth], FAMILIES[word])
            named = word not in SINGLE
            continue
        annotation = _annotation(part, word)
        named = "dict[" in str(annotation)
        part = _model_in(annotation)
    return part


def _component_at(data: Any, loc: tuple[Any, ...], family: str) -> type[Component] | None:
    for word in loc:
        data = data[word]
    kind = data.get("kind") if isinstance(data, dict) else None
    return component(family, kind) if isinstance(kind, str) and kind in kinds(family) else None


def _annotation(part: type[BaseModel], name: object) -> Any:
    return next((info.annotation for key, info in part.model_fields.items() if name == (info.alias or key)), None)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model within an annotation such as `dict[str, Probe]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)
