"""Values given outside of the file, as `--set path=value`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from probes.errors import Problem, SpecError, nearest
from probes.spec.compose import forget_places
from probes.spec.yaml.document import Document, Mark, Path, plain
from probes.spec.yaml.reader import read

EXAMPLE = "write for example `--set probes.acts.enabled=false`"


def override(document: Document, texts: Iterable[str]) -> None:
    """Apply `path=value` texts, as `--set` takes them; the value is read like a value of the file.

    Raises:
        SpecError: a text has no `=`, or a path leads through something that holds no such member; every such text is listed.
    """
    problems = [problem for text in texts for problem in _apply(document, text)]
    if problems:
        raise SpecError(problems)


def _apply(document: Document, text: str) -> tuple[Problem, ...]:
    name, equals, value = text.partition("=")
    path = tuple(name.split("."))
    if not equals or not all(path):
        return (Problem("bad-override", f"`{text}` is not of the form path=value", EXAMPLE, file="--set"),)
    label = f"--set {name}"
    if not value.strip():
        return (Problem("null", f"`{text}` has no value", f'for an empty text write {name}=""', file=label),)
    try:
        _put(document, path, _patch(value, label), label)
    except SpecError as error:
        return error.problems
    return ()


def _patch(value: str, label: str) -> Document:
    """The value of a text; a pattern such as `*.conv` needs no quotes here."""
    if value[:1] in "[{\"'":
        return read(value.encode(), label)
    try:
        data = plain(value)
    except ValueError as error:
        raise SpecError([Problem("bad-number", str(error), file=label)]) from None
    return Document(data, values={(): Mark(label, 1, 1, len(value), value)})


def _put(document: Document, path: tuple[str, ...], patch: Document, label: str) -> None:
    node: Any = document.data
    probes = node.get("probes")
    if len(path) > 2 and path[0] == "probes" and isinstance(probes, dict) and path[1] not in probes:
        hint = nearest(path[1], probes) or f"it has {', '.join(probes)}"
        raise SpecError([Problem("bad-override", f"the spec has no probe `{path[1]}`", hint, file=label)])
    place: Path = ()
    for key in path[:-1]:
        member = _member(node, key, place, label)
        place = (*place, member)
        if isinstance(node, dict) and member not in node:
            document.keys[place] = document.values[place] = patch.values[()]
            node[member] = {}
        node = node[member]
    last = _member(node, path[-1], place, label)
    place = (*place, last)
    forget_places(document, node.get(last) if isinstance(node, dict) else node[last], place)
    node[last] = patch.data
    for places, mine in ((patch.keys, document.keys), (patch.values, document.values)):
        mine.update({(*place, *below): mark for below, mark in places.items()})
    document.keys[place] = patch.values[()]


def _member(node: Any, key: str, place: Path, label: str) -> str | int:
    """The member that a part of a path names in a mapping, or in a list, whose members are counted from 0."""
    if isinstance(node, dict):
        return key
    name = ".".join(map(str, place))
    if not isinstance(node, list):
        raise SpecError([Problem("bad-override", f"`{name}` is not a mapping, so nothing can be set below it", EXAMPLE, file=label)])
    if key.isascii() and key.isdecimal() and int(key[:9]) < len(node):
        return int(key)
    has = f"its members are {name}.0 to {name}.{len(node) - 1}; " if len(node) > 1 else f"its one member is {name}.0; " if node else ""
    message = f"`{name}` is a list, and has no member `{key}`"
    raise SpecError([Problem("bad-override", message, f"{has}set the whole list by `--set '{name}=[...]'`", file=label)])
