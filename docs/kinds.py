"""Write docs/kinds.md, the reference of every transform, edit and sink, out of what their classes say of themselves.

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
    "transform": ("Transforms", "Under `transforms` of a probe, in order: each turns what the one before made into something smaller."),
    "edit": ("Edits", "Under `edit` of a probe, with `allow_edits: true`: rewrites the value in place of the model's own."),
    "sink": ("Sinks", "Under `sinks`, by name."),
}
HEAD = "# Kinds\n\nWritten by `python docs/kinds.py` out of the classes; [the spec](spec.md) says where they stand.\n"


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
