"""The format of specs: two spaces per level, comments with their lines; keys, quotes and brackets as written."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

import yaml
from yaml import ScalarEvent

from probes.errors import Problem, SpecError
from probes.optional_package import import_optional
from probes.spec.yaml.reader import read

WIDTH = 100
MOST_PASSES = 5  # a comment after opening brackets first moves to its own line, and is then indented
Place = tuple[int, int]  # line and column, from 0


class Comment(NamedTuple):
    """A comment.

    Attributes:
        line: number of its line, from 0.
        column: where it begins, from 0.
        text: from the `#` to the end of the line.
        alone: whether nothing else is in its line.
    """

    line: int
    column: int
    text: str
    alone: bool


def formatted(text: bytes, name: str) -> bytes:
    """Format a spec; its meaning and its comments stay.

    Args:
        text: the bytes of the file.
        name: its name for messages.

    Raises:
        SpecError: YAML cannot read the file, it holds what a spec never holds, or the result would not be the same spec.
        MissingExtra: the package that writes YAML is not installed.
    """
    document = read(text, name)
    if not isinstance(document.data, dict):
        raise _refused(name, "it is not a spec: its top level is not a mapping")
    before, after = "", text.decode().replace("\r\n", "\n")
    for _ in range(MOST_PASSES):
        before, after = after, _tidied(after, _rewritten(after, name), name)
        if after == before:
            break
    if after != before or read(after.encode(), name).data != document.data:
        raise _refused(name, "the formatted file would not hold the same values")
    return after.encode()


def _refused(name: str, message: str, line: int = 0) -> SpecError:
    return SpecError([Problem("not-formatted", f"{message}, so the file is left as it is", file=name, line=line)])


def _rewritten(text: str, name: str) -> str:
    """The file as the YAML package writes it: with uniform indentation, and comments at their old columns."""
    ruamel: Any = import_optional("ruamel.yaml", "fmt", "`probes fmt`")
    writer = ruamel.YAML()
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.width, writer.preserve_quotes, writer.brace_single_entry_mapping_in_flow_sequence = 1 << 30, True, True
    result = io.StringIO()
    try:
        data = writer.load(text)
        _open_long_brackets(data, 0)
        writer.dump(data, result)
    except ruamel.error.YAMLError:
        raise _refused(name, "the file cannot be formatted") from None
    return result.getvalue()


def _open_long_brackets(node: Any, indent: int, before: int = 0) -> None:
    """Write a list or a mapping in brackets that does not fit on its line with one member per line.

    Args:
        node: the value.
        indent: how far its members would be indented.
        before: characters before it on its line.
    """
    members = [*node.items()] if isinstance(node, dict) else [("", member) for member in node] if isinstance(node, list) else []
    if not members:
        return
    form = node.fa  # the package's record of how the value was written
    if form.flow_style() and before + _width(node) > WIDTH:
        form.set_block_style()
    if not form.flow_style():
        for key, member in members:
            _open_long_brackets(member, indent + 2, indent + len(str(key)) + 2)


def _width(node: Any) -> int:
    """The approximate number of characters of a value on one line."""
    if isinstance(node, dict):
        return sum(len(str(key)) + _width(member) + 4 for key, member in node.items())
    return sum(_width(member) + 2 for member in node) if isinstance(node, list) else len(str(node))


def _tidied(before: str, after: str, name: str) -> str:
    """Indent comments in the rewritten file like the lines they belong to, and reduce empty lines to single ones.

    Raises:
        SpecError: a comment got lost.
    """
    old, new, lines = [*_comments(before)], [*_comments(after)], after.rstrip("\n").split("\n")
    lost = next((one for one, other in zip_longest(old, new) if one is not None and (other is None or one.text != other.text)), None)
    if lost is not None or len(old) != len(new):
        text, line = (lost.text, lost.line + 1) if lost is not None else ("#", 0)
        raise _refused(name, f"comment `{text}` is inside brackets and cannot be kept there", line)
    alone = {comment.line for comment in new if comment.alone}
    original = before.split("\n")
    for was, comment in zip(old, new, strict=True):
        if comment.alone:
            step = 1 if not was.alone or _is_about_next(original, was) else -1
            lines[comment.line] = " " * _indent(lines, comment.line, step, alone) + comment.text
        else:
            code = lines[comment.line][: comment.column].rstrip()
            lines[comment.line] = f"{code.ljust(comment.column - 2)}  {comment.text}"
    return "\n".join(_single_spaced(lines, _value_lines(after))) + "\n"


def _single_spaced(lines: list[str], values: set[int]) -> Iterator[str]:
    """Remove trailing spaces, and all but the first of consecutive empty lines, except within values."""
    previous = ""
    for number, line in enumerate(lines):
        text = line if number in values else line.rstrip()
        if text or previous or number in values:
            yield text
        previous = text


def _is_about_next(lines: list[str], comment: Comment) -> bool:
    """Whether a comment line belongs to the lines below it: it is not indented further than they are."""
    below = next((line for line in lines[comment.line + 1 :] if line.strip() and not line.lstrip().startswith("#")), None)
    return below is not None and comment.column <= len(below) - len(below.lstrip())


def _indent(lines: list[str], number: int, step: int, comments: set[int]) -> int:
    """The indentation of the nearest line that is not a comment, in one direction; 0 if there is none."""
    number += step
    while 0 <= number < len(lines):
        line = lines[number]
        if line.strip() and number not in comments:
            return len(line) - len(line.lstrip())
        number += step
    return 0


def _comments(text: str) -> Iterator[Comment]:
    """Every comment: text from a `#` at the beginning of a word that is not part of a value."""
    values: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end in _scalars(text):
        for number in range(start[0], end[0] + 1):
            values[number].append((start[1] if number == start[0] else 0, end[1] if number == end[0] else 1 << 30))
    for number, line in enumerate(text.split("\n")):
        for column, character in enumerate(line):
            begins = character == "#" and (column == 0 or line[column - 1] in " \t")
            if begins and not any(left <= column < right for left, right in values[number]):
                yield Comment(number, column, line[column:].rstrip(), not line[:column].strip())
                break


def _scalars(text: str) -> Iterator[tuple[Place, Place]]:
    """The positions where keys and values begin and end."""
    events: Iterator[Any] = yaml.parse(text, Loader=yaml.CSafeLoader)
    for event in events:
        start, end = event.start_mark, event.end_mark
        if isinstance(event, ScalarEvent):
            yield (start.line, start.column), (end.line, end.column)


def _value_lines(text: str) -> set[int]:
    """The lines whose ends are part of a value over several lines."""
    return {line for start, end in _scalars(text) for line in range(start[0], end[0])}
