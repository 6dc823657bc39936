"""Print a resolved spec with the origin of each value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from probes.digest import NOT_IN_IDENTITY
from probes.printable import invisible
from probes.spec.load import LoadedSpec
from probes.spec.yaml.document import Path, plain

WIDEST = 60


def resolved_text(loaded: LoadedSpec) -> str:
    """Return the resolved spec as YAML; a comment after each value names its file and line, or says `default`."""
    lines = list(_lines(loaded, loaded.data, ()))
    width = min(max(len(text) for text, _ in lines), WIDEST)
    return "\n".join(f"{text.ljust(width)}  # {comment}" if comment else text for text, comment in lines)


def _lines(loaded: LoadedSpec, data: dict[str, Any], path: Path) -> Iterator[tuple[str, str]]:
    indent = "  " * len(path)
    for key, value in data.items():
        place = (*path, key)
        if isinstance(value, dict) and value and not _is_one_line(loaded, value, place):
            yield f"{indent}{_text(key)}:", ""
            yield from _lines(loaded, value, place)
        else:
            yield f"{indent}{_text(key)}: {_flow(value)}", _origin(loaded, place)


def _is_one_line(loaded: LoadedSpec, value: dict[str, Any], path: Path) -> bool:
    """Whether a mapping holds only defaults, or is short and comes from one line."""
    origins = {_origin(loaded, (*path, key)) for key in value}
    return len(path) > 1 and len(origins) == 1 and origins == {_origin(loaded, path)} and len(_flow(value)) < WIDEST


def _origin(loaded: LoadedSpec, path: Path) -> str:
    mark = loaded.document.values.get(path) or loaded.document.keys.get(path)
    outside = "; not part of the identity" if path[0] in NOT_IN_IDENTITY or (path[0] == "probes" and path[2:] == ("sinks",)) else ""
    if mark is None:
        return ("the file's name" if path == ("name",) else "default") + outside
    return (mark.file if mark.file.startswith("--set") else f"{mark.file}:{mark.line}") + outside


def _flow(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    """Return a text, quoted only if YAML would read it as something else."""
    try:
        bare = plain(text) == text and text.replace("_", "a").replace("-", "a").replace(".", "a").isalnum() and text[0].isalpha()
    except ValueError:
        bare = False
    bare = bare and text.lower() not in ("null", "yes", "no", "on", "off") and invisible(text) is None
    return text if bare else json.dumps(text, ensure_ascii=False)
