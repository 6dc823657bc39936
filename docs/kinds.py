"""Write docs/kinds.md, the reference of every transform, edit and sink, out of the docstrings of their classes.

Usage: python docs/kinds.py     (tests/test_documents.py compares)
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

from probes.component import Component
from probes.registry import component, kinds

PAGE = Path(__file__).with_name("kinds.md")
FAMILIES = {
    "transform": (
        "Transforms",
        "A list under `transforms` of a probe. Transforms run in order; the input of each is the output of the one before.",
    ),
    "edit": (
        "Edits",
        "One mapping under `edit` of a probe. An edit replaces a value of the model; the spec must have `allow_edits: true`.\n"
        "See [edits](edits.md).",
    ),
    "sink": ("Sinks", "A mapping from names to sinks under `sinks`. See [sinks](sinks.md)."),
}
HEAD = (
    "# Kinds\n\nWritten by `python docs/kinds.py` from the docstrings of the classes. [The spec](spec.md) shows where to use them. Each\n"
    "kind lists its keys, with the default in parentheses.\n"
)


def page() -> str:
    """The whole page."""
    sections = (f"\n## {title}\n\n{about}\n{''.join(map(_entry, _classes(family)))}" for family, (title, about) in FAMILIES.items())
    return HEAD + "".join(sections)


def _classes(family: str) -> Iterator[type[Component]]:
    return (component(family, kind) for kind in kinds(family))


def _entry(kind: type[Component]) -> str:
    """One kind: its sentence and its keys."""
    fields = {name: field for name, field in kind.model_fields.items() if name != "kind"}
    keys = [f"- `{field.alias or name}`{_default(field)}: {(field.description or '').rstrip('.')}" for name, field in fields.items()]
    return "\n".join([f"\n### `{kind.model_fields['kind'].default}`\n", inspect.getdoc(kind) or "", "", *keys]).rstrip() + "\n"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return " (required)"
    return "" if field.default in (None, {}, ()) else f" ({field.default})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
