"""What pydantic found, in our words and at the place in the YAML."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from probes.component import Component
from probes.document import Document, Path
from probes.errors import Problem, nearest
from probes.registry import component, kinds
from probes.spec.compose import problem
from probes.spec.models import Spec

TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "mapping_type": "a mapping",
}
KNOWN_MISTAKES = {
    "forward_pre": "write `pre-forward`",
    "forward-pre": "write `pre-forward`",
    "pre_forward": "write `pre-forward`",
    "full_backward": "write `backward`; it never uses a full backward hook",
    "module": "write `modules`, a list",
    "value": "write `values`, a list",
    "phase": "write `phases`, a list under `when`",
    "tensor": "write `tensors`, a list",
    "transform": "write `transforms`, a list",
    "sink": "write `sinks`, a list",
    "edits": "write `allow_edits: true`",
}
OURS = {"no_effect", "hook_and_value"}


def translate(document: Document, error: ValidationError) -> list[Problem]:
    """Every problem of a validation, typos that show as missing plus unknown once."""
    found = [_one(document, entry) for entry in error.errors(include_url=False)]
    unknown = [item for item in found if item.code == "unknown-key"]
    return [item for item in found if not (item.code == "missing-key" and any(_typo_of(other, item) for other in unknown))]


def _typo_of(unknown: Problem, missing: Problem) -> bool:
    """Whether an unknown key is a misspelling of one that is missing beside it."""
    there, _, typed = unknown.path.rpartition(".")
    here, _, wanted = missing.path.rpartition(".")
    return there == here and (f"`{wanted}`" in unknown.hint or bool(nearest(typed, [wanted])))


def _one(document: Document, entry: Any) -> Problem:
    kind, context = entry["type"], entry.get("ctx", {})
    path = _in_document(document, (*entry["loc"], *context.get("at", ())))
    value = entry.get("input")
    if kind == "missing":
        name = str(entry["loc"][-1])
        where = (*path[:-1],) if path and path[-1] == name else path
        return problem(document, where, "missing-key", f"key `{name}` is missing", key=True).at(path=".".join(map(str, (*where, name))))
    if kind == "extra_forbidden":
        return _unknown(document, tuple(entry["loc"]))
    if kind in TYPES:
        return problem(document, path, "wrong-type", f"`{_last(path)}` must be {TYPES[kind]}, got {_shown(value)}", _type_hint(kind, value))
    if kind == "literal_error":
        allowed = [part.strip().strip("'") for part in context["expected"].replace(" or ", ", ").split(",")]
        hint = KNOWN_MISTAKES.get(str(value), nearest(str(value), allowed))
        return problem(document, path, "bad-choice", f"{_shown(value)} is not one of {', '.join(allowed)}", hint)
    code = kind.replace("_", "-")
    if kind in ("greater_than_equal", "greater_than", "less_than_equal", "less_than"):
        code = "out-of-range"
        bound = next(iter(context.values()))
        words = {"greater_than_equal": "or more", "less_than_equal": "or less"}
        limit = f"{bound} {words[kind]}" if kind in words else f"{'more' if kind == 'greater_than' else 'less'} than {bound}"
        return problem(document, path, code, f"`{_last(path)}` must be {limit}, got {_shown(value)}")
    if kind in ("too_short", "too_long"):
        return problem(document, path, "wrong-length", f"`{_last(path)}` {'is empty' if kind == 'too_short' else 'has too many members'}")
    key = kind in ("no_effect", "no_place", "no_hook")
    return problem(document, path, code, entry["msg"].removeprefix("Value error, "), str(context.get("hint", "")), key=key)


def _in_document(document: Document, loc: tuple[Any, ...]) -> Path:
    """A pydantic location as a path of the document: what stands in no file, such as `[key]`, is left out."""
    return tuple(part for part in loc if part != "[key]")


def _unknown(document: Document, loc: tuple[Any, ...]) -> Problem:
    name = str(loc[-1])
    known = _known_keys(document, loc[:-1])
    hint = KNOWN_MISTAKES.get(name) or nearest(name, known) or (f"known: {', '.join(known)}" if known else "")
    place = _in_document(document, loc[:-1])
    where = f"`{_last(place)}`" if place else "a spec"
    return problem(document, (*place, name), "unknown-key", f"`{name}` is not a key of {where}", hint, key=True)


def _known_keys(document: Document, loc: tuple[Any, ...]) -> list[str]:
    """The keys that a part of a spec may have."""
    model: Any = Spec
    named = False  # whether the part at hand is a name of the user's, as below `probes`
    for part in loc:
        if named:
            named = False
            continue
        if part in ("transforms", "edit", "sinks") and issubclass(model, BaseModel):
            return _component_keys(document, loc, "transform" if part == "transforms" else str(part).rstrip("s"))
        annotation = _field(model, part)
        named = "dict[" in str(annotation)
        model = _model_in(annotation)
        if model is None:
            return []
    extra = ["extends", "vars"] if model is Spec else []
    return sorted([(info.alias or name) for name, info in model.model_fields.items()] + extra)


def _component_keys(document: Document, loc: tuple[Any, ...], family: str) -> list[str]:
    data: Any = document.data
    for part in loc:
        data = data[part]
    kind = data.get("kind") if isinstance(data, dict) else None
    found: type[Component] | None = component(family, kind) if isinstance(kind, str) and kind in kinds(family) else None
    return sorted(info.alias or name for name, info in found.model_fields.items()) if found else []


def _field(model: type[BaseModel], name: object) -> Any:
    for key, info in model.model_fields.items():
        if name in (key, info.alias):
            return info.annotation
    return None


def _model_in(annotation: Any) -> Any:
    """The model within an annotation such as `dict[str, Probe]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)


def _last(path: Path) -> str:
    """The key that a person would call the value by: the last one, or the list's for an item."""
    texts = [part for part in path if isinstance(part, str)]
    return texts[-1] if texts else "the spec"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = str(value)
    return f"'{text if len(text) <= 60 else text[:57] + '...'}'" if isinstance(value, str) else text


def _type_hint(kind: str, value: Any) -> str:
    if kind in ("tuple_type", "list_type") and isinstance(value, str):
        return f"write [{value}]"
    if kind == "string_type" and isinstance(value, int | float):
        return f'quote it: "{value}"'
    return ""
