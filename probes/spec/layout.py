"""The one way a spec is laid out: keys in the order of the reference, two spaces a level, comments where they were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from probes.spec.comments import Entry, Node, Written, written
from probes.spec.key_hints import part_at
from probes.spec.models import Spec
from probes.spec.yaml.reader import Document, Path, read

WIDTH = 100
FIRST = ("version", "name", "about", "extends", "vars")


class Line(NamedTuple):
    """A line of the result.

    Attributes:
        text: without the comment behind it.
        comment: the comment behind it.
        column: where the comment would best begin: where its author put it.
    """

    text: str
    comment: str = ""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.text.ljust(self.column - 2)}  {self.comment}" if self.comment else self.text


def laid_out(text: bytes, name: str) -> bytes:
    """A spec in the one layout; what it means stays, and so does each comment.

    Args:
        text: the bytes of the file.
        name: its name for messages.

    Raises:
        SpecError: YAML cannot read it, or it holds what a spec never holds; every problem is listed.
    """
    document = read(text, name)
    found = written(text.decode().replace("\r\n", "\n"))
    lines = list(_Writer(document).lines(found))
    result = "".join(f"{line}\n" for line in lines).encode()
    assert read(result, name).data == document.data, "BUG: the layout changed what the spec says"
    return result


class _Writer:
    """Writes the nodes of a document."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def lines(self, found: Written) -> Iterator[Line]:
        """Every line of the file."""
        yield from map(Line, found.head)
        if found.root.entries is None:
            yield Line(_scalar(found.root))
        if found.head and not (len(found.head) == 1 and found.head[0].startswith("# yaml-language-server")):
            yield Line("")
        yield from _without_first_gap(list(self._members(found.root, (), 0)))
        yield from map(Line, found.foot)

    def _members(self, node: Node, path: Path, indent: int) -> Iterator[Line]:
        """The entries of a list or a mapping, one below the other."""
        entries = self._ordered(node, path)
        for place, entry in enumerate(entries):
            if entry.spaced:
                yield Line("")
            yield from _comments(entry.lead, indent)
            yield from self._entry(entry, (*path, entry.name if entry.key is not None else place), indent)
            yield from _comments(entry.foot, indent)

    def _entry(self, entry: Entry, path: Path, indent: int) -> Iterator[Line]:
        value = entry.value
        head = " " * indent + (f"{_scalar(entry.key)}:" if entry.key is not None else "-")
        if value.style in ("|", ">") and entry.key is not None and (block := _block(value, indent + 2)):
            yield from (Line(f"{head} {block[0]}", entry.tail, entry.column), *map(Line, block[1:]))
            return
        inline = self._inline(value, path)
        if inline is not None and (value.entries is None or not value.entries or len(head) + 1 + len(inline) <= WIDTH):
            yield Line(f"{head} {inline}", entry.tail, entry.column)
        elif entry.key is not None:
            yield Line(head, entry.tail, entry.column)
            yield from self._members(value, path, indent + 2)
        else:
            yield from self._item(entry, path, indent)

    def _item(self, entry: Entry, path: Path, indent: int) -> Iterator[Line]:
        """A list's member that is a list or a mapping: its first line stands behind the dash."""
        inner = list(self._members(entry.value, path, indent + 2))
        first = next(index for index, line in enumerate(inner) if line.text.strip() and not line.text.lstrip().startswith("#"))
        for line in inner[:first]:
            if line.text.strip():
                yield Line(line.text[2:])
        head = inner[first]
        comments = [one for one in (entry.tail, head.comment) if one]
        yield from (Line(" " * indent + comment) for comment in comments[:-1])
        yield Line(" " * indent + "- " + head.text[indent + 2 :], "".join(comments[-1:]), head.column or entry.column)
        yield from inner[first + 1 :]

    def _inline(self, node: Node, path: Path) -> str | None:
        """A value on one line; None where it was not written so, or a comment stands within it."""
        if node.entries is None:
            return _scalar(node)
        if not node.flow and node.entries:
            return None
        parts = []
        for place, entry in enumerate(self._ordered(node, path)):
            inner = self._inline(entry.value, (*path, entry.name if entry.key is not None else place))
            if inner is None or entry.lead or entry.tail or entry.foot:
                return None
            parts.append(inner if entry.key is None else f"{_scalar(entry.key)}: {inner}")
        return f"[{', '.join(parts)}]" if self._is_list(path) else f"{{{', '.join(parts)}}}"

    def _is_list(self, path: Path) -> bool:
        found = self.document.data
        for part in path:
            found = found[part]
        return isinstance(found, list)

    def _ordered(self, node: Node, path: Path) -> list[Entry]:
        """The entries: keys of a part of a spec in the order of the reference, names of the author's in his own."""
        entries = list(node.entries or ())
        known = _order(self.document, path) if entries and entries[0].key is not None else ()
        return sorted(entries, key=lambda entry: known.index(entry.name) if entry.name in known else len(known)) if known else entries


def _order(document: Document, path: Path) -> tuple[str, ...]:
    """The keys of the part of a spec at a path, in order; empty where the keys are names."""
    if path and path[-1] in ("probes", "sinks", "vars", "models", "tolerance") and len(path) == 1:
        return ()
    try:
        part = part_at(document.data, path)
    except (KeyError, IndexError, TypeError):
        part = None
    if part is None:
        return ("kind",)
    keys = [info.alias or name for name, info in part.model_fields.items()]
    first = FIRST if part is Spec else ("kind",)
    return tuple(dict.fromkeys([*first, *keys])) if part is Spec or "kind" in keys else tuple(keys)


def _comments(lines: list[str], indent: int) -> Iterator[Line]:
    return (Line(" " * indent + line if line else "") for line in lines)


def _without_first_gap(lines: list[Line]) -> list[Line]:
    return lines[1:] if lines and not str(lines[0]) else lines


def _scalar(node: Node) -> str:
    """A scalar as it was written; quotes become double ones where they can, several lines become one."""
    if "\n" in node.text or node.style in ("|", ">"):
        return json.dumps(node.value, ensure_ascii=False)
    if node.style == "'" and not set(node.value) & set('"\\'):
        return f'"{node.value}"'
    return node.text


def _block(node: Node, indent: int) -> list[str] | None:
    """A text over several lines in its own style; None where that is told how far it is indented, or keeps empty lines at its end."""
    head, *rest = node.text.rstrip("\n").split("\n")
    while rest and not rest[-1].strip():
        rest.pop()
    if not rest or any(mark in head.partition("#")[0] for mark in "+123456789"):
        return None
    depth = min(len(line) - len(line.lstrip(" ")) for line in rest if line.strip())
    if rest[0].strip() == "" or len(rest[0]) - len(rest[0].lstrip(" ")) != depth:
        return None
    return [head.rstrip(), *(" " * indent + line[depth:] if line.strip() else "" for line in rest)]
