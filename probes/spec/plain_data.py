"""A spec that a program gives as a mapping: refused where it holds anything that a YAML file cannot hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from probes.errors import UsageError

ALLOWED = "a spec holds texts, numbers, `True`, `False`, lists and mappings with texts as keys"


def plain(data: Any, path: str = "", outer: tuple[int, ...] = ()) -> Any:
    """The same data in Python's own types, with lists for tuples.

    Args:
        data: a mapping, or a part of one.
        path: the keys that lead to it, for messages.
        outer: identities of the mappings and lists that it is in.

    Raises:
        UsageError: a key or a value is of another type; the message has its place.
    """
    if id(data) in outer:
        raise UsageError(f"{_place(path)} contains itself; {ALLOWED}")
    if isinstance(data, Mapping):
        return {_key(key, path): plain(value, f"{path}.{key}" if path else str(key), (*outer, id(data))) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value, f"{path}[{index}]", (*outer, id(data))) for index, value in enumerate(data)]
    if isinstance(data, str):
        return _text(str(data), path)
    if isinstance(data, float) and not math.isfinite(data):
        raise UsageError(f"{_place(path)} is `{data}`; a number must be finite")
    if data is not None and not isinstance(data, bool | int | float):
        raise UsageError(f"{_place(path)} is of the type `{_type(data)}`; {ALLOWED}")
    return data


def _key(key: object, path: str) -> str:
    """A key; JSON would write `True` as a text, and YAML 1.1 reads `on`, `yes`, `off` and `no` as booleans."""
    if isinstance(key, str):
        return _text(str(key), path)
    more = "; YAML 1.1, as PyYAML reads it, has booleans for `on`, `off`, `yes` and `no`: quote the key" if isinstance(key, bool) else ""
    raise UsageError(f"{_place(path)} has the key `{key}` of the type `{_type(key)}`; a key must be a text{more}")


def _text(text: str, path: str) -> str:
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise UsageError(f"{_place(path)} has a text that is not Unicode: {text!a}")
    return text


def _type(found: object) -> str:
    kind = type(found)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _place(path: str) -> str:
    return f"`{path}` of the spec" if path else "the spec"
