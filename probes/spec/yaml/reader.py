"""The strict loader: YAML text to plain data, with the place of every key and value.

The events are libyaml's, everything above them is ours: YAML 1.2 core scalars, one document, no anchors, aliases, merge
keys or tags, no duplicate keys, no nulls, and limits on size, depth, nodes and length of a scalar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml import events as ev

from probes.errors import MissingExtra, Problem, SpecError
from probes.printable import invisible
from probes.spec.yaml.document import Document, Mark, Path, kind_of, plain
from probes.spec.yaml.hints import cause, is_misindented, missing

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_SCALAR = 4096
QUOTED = frozenset({"'", '"', "|", ">"})
LOOKS_BOOLEAN = frozenset({"yes", "no", "on", "off"})  # without y and n: `y` names an axis, and YAML loaders read both as text


class Refusal(Exception):
    """Reading cannot continue; contains the problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def read(text: bytes, file: str) -> Document:
    """Read one YAML document without problems.

    Args:
        text: the bytes of the file.
        file: its name, for messages.

    Raises:
        SpecError: it is not plain YAML of the allowed kind; every problem that does not hide others is listed.
        MissingExtra: PyYAML was built without libyaml.
    """
    document = read_partly(text, file)
    if document.problems:
        raise SpecError(sorted(document.problems, key=lambda problem: (problem.line, problem.column)))
    return document


def read_partly(text: bytes, file: str) -> Document:
    """Read one YAML document; faulty values and keys are added to its problems.

    Args:
        text: the bytes of the file.
        file: its name, for messages.

    Raises:
        SpecError: it cannot be read to its end.
        MissingExtra: PyYAML was built without libyaml.
    """
    found: list[Problem] = []
    try:
        reader = _Reader(decode(text, file), file)
        found = reader.document.problems
        return reader.read()
    except Refusal as refusal:
        above = [problem for problem in found if problem.line < refusal.problem.line]  # those of its line may have the same cause
        raise SpecError([*above, refusal.problem]) from None


def too_large(size: int, file: str, most: int = MAX_BYTES) -> Problem:
    """The problem of a file that is too large."""
    return Problem("too-large", f"the file has {size / (1 << 20):.1f} MiB; a spec has at most {most >> 20} MiB", file=file)


def decode(text: bytes, file: str) -> str:
    """The text of a file: UTF-8, of limited size, without control characters.

    Raises:
        Refusal: it is not.
    """
    if len(text) > MAX_BYTES:
        raise Refusal(too_large(len(text), file))
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"the file is not UTF-8 (byte 0x{text[error.start]:02X} at offset {error.start})"
        raise Refusal(Problem("not-utf-8", message, "save it as UTF-8", file=file)) from None
    for number, line in enumerate(decoded.split("\n"), 1):
        bad = invisible(line.rstrip("\r"))
        if bad is not None:
            raise Refusal(_invisible(line.rstrip("\r"), bad, file, number))
        if "\t" in line[: len(line) - len(line.lstrip())] and line.strip():
            column = line.index("\t") + 1
            message = "a tab is used for indentation; YAML allows spaces only"
            raise Refusal(Problem("tab-indentation", message, "replace it by spaces", file, number, column, source=line.replace("\t", " ")))
    return decoded


def _invisible(line: str, index: int, file: str, number: int) -> Problem:
    found = line[index]
    message = f"invisible character U+{ord(found):04X}; only visible characters are allowed"
    hint = "write a plain space" if found.isspace() else "remove it"
    if found == "\r":
        hint = "end lines as Unix or Windows does (LF or CRLF)"
    if (found, number, index) == ("\ufeff", 1, 0):
        hint = "save the file as UTF-8 without a byte order mark (BOM)"
    shown = "".join(c if c == "\t" or invisible(c) is None else "\ufffd" for c in line)
    return Problem("invisible-character", message, hint, file, number, index + 1, source=shown)


class _Reader:
    """Builds the data from libyaml's events."""

    def __init__(self, text: str, file: str) -> None:
        if not yaml.__with_libyaml__:
            raise MissingExtra("PyYAML was installed without libyaml, which specs are read with; install a wheel of PyYAML")
        self.file = file
        self.lines = text.split("\n")
        self.document = Document()
        self.nodes = 0
        self.events = self._events(text)

    def read(self) -> Document:
        """The whole document.

        Raises:
            Refusal: reading cannot continue.
        """
        first = next(self.events, None)
        empty = isinstance(first, ev.ScalarEvent) and not first.value and first.style not in QUOTED  # such as a file of only `---`
        if first is None or empty or isinstance(first, ev.StreamEndEvent):
            raise Refusal(Problem("empty-file", "the file is empty; a spec needs at least `version` and `probes`", file=self.file))
        self.document.data = self._node(first, (), 0)
        after = next(self.events, None)
        if not self.document.problems and after is not None and not isinstance(after, ev.StreamEndEvent):
            raise self._refuse("second-document", "a second document starts here; a file contains one spec", after, "remove `---`")
        return self.document

    def _events(self, text: str) -> Iterator[Any]:
        parser = yaml.CSafeLoader(text)
        try:
            while parser.check_event():
                event = parser.get_event()
                if isinstance(event, ev.DocumentStartEvent) and (event.version or event.tags):
                    raise self._refuse("tag", "`%` starts a YAML directive; directives are not allowed in specs", event, "remove the line")
                if isinstance(event, ev.StreamStartEvent | ev.DocumentStartEvent | ev.DocumentEndEvent):
                    continue
                yield event
        except yaml.MarkedYAMLError as error:
            raise Refusal(self._broken(error)) from None
        except yaml.YAMLError as error:
            raise Refusal(Problem("not-yaml", f"the file is not YAML: {error}", file=self.file)) from None

    # Nodes

    def _node(self, event: Any, path: Path, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self._refuse("too-many-nodes", f"more than {MAX_NODES} values in one file", event)
        if isinstance(event, ev.AliasEvent):
            hint = f'if it is a pattern, quote it: "*{event.anchor}"; to repeat a part, use `defaults`'
            self._note(path, "alias", f"`*{event.anchor}` is a YAML alias; aliases are not allowed in specs", event, hint)
            return ""
        if event.anchor is not None:
            message = f"`&{event.anchor}` is a YAML anchor; anchors are not allowed in specs"
            found = self._problem("anchor", message, event, "repeat the value, or use `defaults`")
            self.document.problems.append(found.at(path=".".join(map(str, path))))  # the value itself can be read
        if event.tag is not None:
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._note(path, "tag", f"tag `{shown}` is not allowed; a spec contains plain data only", event, "remove it")
            if isinstance(event, ev.ScalarEvent):
                return str(event.value)
        self.document.values.setdefault(path, self._mark(event))
        if isinstance(event, ev.ScalarEvent):
            return self._scalar(event, path) if event.value or event.style in QUOTED else self._nothing(event, path)
        if depth >= MAX_DEPTH:
            raise self._refuse("too-deep", f"nested deeper than {MAX_DEPTH} levels", event)
        if isinstance(event, ev.SequenceStartEvent):
            return self._sequence(path, depth)
        return self._mapping(event, path, depth)

    def _sequence(self, path: Path, depth: int) -> list[Any]:
        items: list[Any] = []
        for event in self.events:
            if isinstance(event, ev.SequenceEndEvent):
                return items
            items.append(self._node(event, (*path, len(items)), depth + 1))
        raise AssertionError("BUG: libyaml ended a sequence without an event")

    def _mapping(self, start: Any, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in self.events:
            if isinstance(event, ev.MappingEndEvent):
                return found
            name = self._key(event, path)
            place = (*path, name)
            if name in found:
                first = self.document.keys[place].line
                message = f"duplicate key `{name}`; it is already in line {first}"
                self._note(place, "duplicate-key", message, event, "merge the two, or rename one")
            else:
                self.document.keys[place] = self._mark(event)
            value = next(self.events)
            if isinstance(value, ev.MappingStartEvent) and value.flow_style and self._braces(value):
                raise self._refuse("unquoted-braces", "`{` starts a mapping in YAML", value, 'quote it: "{...}"')
            read = self._node(value, place, depth + 1)
            found.setdefault(name, read)
        raise AssertionError("BUG: libyaml ended a mapping without an event")

    def _braces(self, event: Any) -> bool:
        """Whether a flow mapping begins right after a dollar sign, as in an unquoted `${name}`."""
        return event.start_mark.column > 0 and self._line(event.start_mark.line)[event.start_mark.column - 1] == "$"

    def _nothing(self, event: Any, path: Path) -> str:
        """Add the problem that a value is missing, with the likely cause."""
        mark = event.start_mark
        ends = self._line(mark.line)[mark.column : mark.column + 80].lstrip()[:1] in ("", "#")
        below = next((line for index in range(mark.line + 1, len(self.lines)) if (line := self._line(index)).strip()), "") if ends else ""
        source = self._line(mark.line)
        hint = missing(str(path[-1]) if path else "", source, mark.column, below)
        if is_misindented(source, mark.column, below):
            self.document.unreadable.add(path[:-1])  # the keys that were meant to be below this key are at its level
        elif path and ":" in str(path[-1]):
            self.document.unreadable.add((*path[:-1], str(path[-1]).partition(":")[0]))
        self._note(path, "null", "the value is missing", event, hint)
        return ""

    def _key(self, event: Any, path: Path) -> str:
        self.nodes += 1
        if isinstance(event, ev.AliasEvent):
            raise self._refuse(
                "alias", f"`*{event.anchor}` is a YAML alias; aliases are not allowed in specs", event, f'quote it: "*{event.anchor}"'
            )
        if not isinstance(event, ev.ScalarEvent):
            hint = 'an unquoted `${name}` or glob with braces? quote it: "${name}"'
            raise self._refuse("key-not-text", "a key must be a text", event, hint)
        if event.value == "<<" and event.implicit[0]:
            raise self._refuse(
                "merge-key", "`<<` is a YAML merge key; merge keys are not allowed in specs", event, "use `defaults` or `extends`"
            )
        place = (*path, str(event.value))
        value = self._scalar(event, place, key=True)
        if isinstance(value, str):
            return value
        message = f"key `{event.value}` is read as {kind_of(value)}; a key must be a text"
        self._note(place, "key-not-text", message, event, f'quote it: "{event.value}"')
        return str(event.value)

    def _scalar(self, event: Any, path: Path, *, key: bool = False) -> Any:
        text: str = event.value
        if len(text) > MAX_SCALAR:
            raise self._refuse("scalar-too-long", f"a value has {len(text)} characters; at most {MAX_SCALAR} are allowed", event)
        if event.style in QUOTED:
            bad = invisible(text.replace("\n", " "))
            if bad is not None:  # only an escape sequence can produce it
                message = f"escape sequence of the invisible character U+{ord(text[bad]):04X}; only visible characters are allowed"
                raise self._refuse("invisible-character", message, event, "remove it")
            return text
        if text in ("", "~", "null", "Null", "NULL"):
            if not key:
                self._note(path, "null", f"`{text}` is a null, which specs do not allow", event, "write a value, or remove the key")
            return text
        if text.lower() in LOOKS_BOOLEAN and not key:
            message = f"`{text}` is a text here, but a boolean for other YAML readers"
            self._note(path, "looks-boolean", message, event, f'write true or false, or quote it: "{text}"')
            return text
        try:
            return plain(text)
        except ValueError as error:
            self._note(path, "bad-number", str(error), event, "")
            return text

    # Places

    def _line(self, index: int) -> str:
        return self.lines[index].rstrip("\r") if index < len(self.lines) else ""

    def _mark(self, event: Any) -> Mark:
        start, end = event.start_mark, event.end_mark
        source = self._line(start.line)
        stop = end.column if end.line == start.line else len(source)
        if isinstance(event, ev.SequenceStartEvent | ev.MappingStartEvent) and not event.flow_style:
            stop = start.column + 1
            token = source[start.column :].split(" ")[0].rstrip(":")
            stop = start.column + max(len(token), 1)
        return Mark(self.file, start.line + 1, start.column + 1, max(stop - start.column, 1), source)

    def _problem(self, code: str, message: str, event: Any, hint: str) -> Problem:
        mark = self._mark(event)
        return Problem(code, message, hint, mark.file, mark.line, mark.column, mark.width, mark.source)

    def _note(self, path: Path, code: str, message: str, event: Any, hint: str) -> None:
        self.document.refuse(path, self._problem(code, message, event, hint))

    def _refuse(self, code: str, message: str, event: Any, hint: str = "") -> Refusal:
        return Refusal(self._problem(code, message, event, hint))

    def _broken(self, error: Any) -> Problem:
        """The problem for an error of libyaml, with the likely cause."""
        what = str(error.problem or error)
        unclosed = "end of stream" in what and error.context_mark is not None
        mark = error.context_mark if unclosed else error.problem_mark or error.context_mark
        line, column = (mark.line, mark.column) if mark is not None else (0, 0)
        source = self._line(line)
        if "alphabetic" in what and source[column - 1 : column] == "*":
            column -= 1
        glued = self._glued(line) if "mapping values" in what or "expected ':'" in what else None
        if glued is not None:
            line, source, column, what = glued, self._line(glued), self._line(glued).index(":"), "a key and its value are one word"
        code, hint = cause(what, source, column)
        return Problem(code, f"YAML cannot read this: {what}", hint, self.file, line + 1, column + 1, 1, source)

    def _glued(self, line: int) -> int | None:
        """The line with a key that has no space after its colon: this line, or the last one before it that is not empty."""
        said = [index for index in range(line, -1, -1) if self._line(index).strip()][:2]
        return next((index for index in said if re.match(r"\s*(- )?[\w-]+:[^\s:]", self._line(index))), None)
