"""A spec as it is written: its nodes in the author's words, each with the comments that are about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml import events as ev

Place = tuple[int, int]  # line and column, from 0


@dataclass(eq=False)
class Node:
    """A value.

    Attributes:
        text: a scalar in the author's words; of one over several lines, all of them.
        value: a scalar's value as YAML reads it.
        style: how a scalar is quoted: empty, `'`, `"`, `|` or `>`.
        entries: the members of a list or a mapping; None for a scalar.
        flow: whether a list or a mapping stands in brackets.
        start: where it begins.
        end: where it ends.
    """

    text: str = ""
    value: str = ""
    style: str = ""
    entries: list[Entry] | None = None
    flow: bool = False
    start: Place = (0, 0)
    end: Place = (0, 0)


@dataclass(eq=False)
class Entry:
    """A member of a list, or a key with its value.

    Attributes:
        key: the key; None in a list.
        value: the value.
        start: where it begins.
        lead: comment lines above it.
        tail: the comment behind it on its line.
        column: where that comment begins.
        foot: comment lines below it, which are not about the next, and empty ones among them.
        spaced: whether an empty line stands above it.
    """

    key: Node | None
    value: Node
    start: Place
    lead: list[str] = field(default_factory=list)
    tail: str = ""
    column: int = 0
    foot: list[str] = field(default_factory=list)
    spaced: bool = False

    @property
    def name(self) -> str:
        """The key as YAML reads it; empty in a list."""
        return self.key.value if self.key is not None else ""


@dataclass(eq=False)
class Written:
    """A whole file.

    Attributes:
        root: its mapping.
        head: lines at the top that are about the file.
        foot: lines at the end.
    """

    root: Node
    head: list[str]
    foot: list[str]


def written(text: str) -> Written:
    """Read a file that `document.read` takes."""
    lines = text.split("\n")
    events = iter(yaml.parse(text, Loader=yaml.CSafeLoader))
    first = next(event for event in events if isinstance(event, ev.ScalarEvent | ev.SequenceStartEvent | ev.MappingStartEvent))
    root = _node(first, events, lines)
    found = Written(root, [], [])
    entries = sorted(_all(root), key=lambda entry: entry.start)
    alone: dict[int, str] = {}
    for line, column, comment in _comments(lines, root):
        if lines[line][:column].strip():
            _behind(entries, (line, column), comment)
        else:
            alone[line] = comment
    for gap in _gaps(lines, alone, {line for scalar in _scalars(root) for line in range(scalar.start[0], scalar.end[0] + 1)}):
        _between_entries(found, entries, lines, gap, alone)
    return found


def _gaps(lines: list[str], alone: dict[int, str], taken: set[int]) -> Iterator[list[int]]:
    """Runs of lines that are empty or hold a comment alone."""
    run: list[int] = []
    for number, line in enumerate(lines):
        if number in alone or (not line.strip() and number not in taken):
            run.append(number)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _between_entries(found: Written, entries: list[Entry], lines: list[str], gap: list[int], alone: dict[int, str]) -> None:
    """Give the comments of a gap to the entry below, or, above an empty line or further to the right, to one before."""
    following = next((entry for entry in entries if entry.start[0] > gap[-1]), None)
    before = [entry for entry in entries if entry.start[0] < gap[0]]
    near = len(gap)
    while near and gap[near - 1] in alone and following is not None and (not before or _column(lines, gap[near - 1]) <= following.start[1]):
        near -= 1
    if not before and near == 0 and alone[gap[0]].startswith("# yaml-language-server"):
        near = 1
    if following is not None:
        following.lead += [alone[line] for line in gap[near:]]
        following.spaced = near > 0 and gap[near - 1] not in alone
    if not before:
        found.head += _single_spaced([alone.get(line, "") for line in gap[:near]])
        _strip(found.head)
        return
    column = max(_column(lines, line) for line in gap)
    for line in gap[:near]:
        if line in alone:
            column = min(column, _column(lines, line))
            alike = [entry for entry in before if entry.start[1] <= column]
            target = found.foot if following is None and not column else (alike or before)[-1].foot
            if line > gap[0] and line - 1 not in alone:
                target.append("")
            target.append(alone[line])


def _strip(lines: list[str]) -> None:
    """Take empty lines off the end."""
    while lines and not lines[-1]:
        lines.pop()


def _column(lines: list[str], line: int) -> int:
    return len(lines[line]) - len(lines[line].lstrip())


def _single_spaced(lines: list[str]) -> list[str]:
    """The lines, of empty ones in a row only the first."""
    return [line for place, line in enumerate(lines) if line or not place or lines[place - 1]]


def _place(mark: Any) -> Place:
    return mark.line, mark.column


def _node(event: Any, events: Iterator[Any], lines: list[str]) -> Node:
    start, end = _place(event.start_mark), _place(event.end_mark)
    if isinstance(event, ev.ScalarEvent):
        style = event.style if event.style in ("'", '"', "|", ">") else ""
        return Node(_between(lines, start, end), event.value, style, None, False, start, end)
    node = Node(entries=[], flow=bool(event.flow_style), start=start)
    assert node.entries is not None
    for inner in events:
        if isinstance(inner, ev.SequenceEndEvent | ev.MappingEndEvent):
            node.end = _place(inner.end_mark)
            break
        key = _node(inner, events, lines) if isinstance(event, ev.MappingStartEvent) else None
        value = _node(inner if key is None else next(events), events, lines)
        start = key.start if key is not None else value.start if node.flow else _dash(lines, value.start)
        node.entries.append(Entry(key, value, start))
    return node


def _dash(lines: list[str], start: Place) -> Place:
    """Where the dash of a list's item stands."""
    line, column = start
    while "-" not in lines[line][:column]:
        line, column = line - 1, len(lines[line - 1])
    return line, lines[line].rindex("-", 0, column)


def _between(lines: list[str], start: Place, end: Place) -> str:
    if start[0] == end[0]:
        return lines[start[0]][start[1] : end[1]]
    whole = [lines[start[0]][start[1] :], *lines[start[0] + 1 : end[0]], lines[end[0]][: end[1]] if end[0] < len(lines) else ""]
    return "\n".join(whole)


def _all(node: Node) -> Iterator[Entry]:
    """Every entry below a node."""
    for entry in node.entries or ():
        yield entry
        yield from _all(entry.value)


def _scalars(node: Node) -> Iterator[Node]:
    if node.entries is None:
        yield node
    for entry in node.entries or ():
        if entry.key is not None:
            yield entry.key
        yield from _scalars(entry.value)


def _comments(lines: list[str], root: Node) -> Iterator[tuple[int, int, str]]:
    """Every comment with its place: what begins with `#` at a word's beginning and is not within a scalar."""
    within: dict[int, list[tuple[int, int]]] = {}
    for scalar in _scalars(root):
        for line in range(scalar.start[0], scalar.end[0] + 1):
            left = scalar.start[1] if line == scalar.start[0] else 0
            right = scalar.end[1] if line == scalar.end[0] else len(lines[line]) if line < len(lines) else 0
            within.setdefault(line, []).append((left, right))
    for number, text in enumerate(lines):
        for column, character in enumerate(text):
            begins = character == "#" and (column == 0 or text[column - 1] in " \t")
            if begins and not any(left <= column < right for left, right in within.get(number, ())):
                yield number, column, text[column:].rstrip()
                break


def _behind(entries: list[Entry], place: Place, comment: str) -> None:
    """Give a comment at a line's end to the outermost entry that begins on the line, or ends on it."""
    before = [entry for entry in entries if entry.start < place]
    here = [entry for entry in before if entry.start[0] == place[0]]
    whole = [entry for entry in here if entry.value.end <= place or not entry.value.flow]
    ending = [entry for entry in before if entry.value.end[0] == place[0] and entry.value.end <= place]
    entry = (whole or here or ending or before[-1:])[0]
    if entry.tail:
        entry.foot.append(comment)
    else:
        entry.tail, entry.column = comment, place[1]
