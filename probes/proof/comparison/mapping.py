"""The syntax of `--map`: names of the first run and of the second, and projections that one run has in one module."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from probes.errors import UsageError, nearest
from probes.plain_file import read_plain
from probes.proof.comparison.pairing import Rename, parse_rename

OPTIONS = ("dim", "groups")
_OPTIONS = re.compile(r"\[([^\[\]]*)\]$")


class MapText(NamedTuple):
    """One mapping as it was given, and where.

    Attributes:
        text: `OLD=NEW`, or with `A+B` on one side.
        file: the file that it is a line of; empty for an argument.
        line: from 1.
    """

    text: str
    file: str = ""
    line: int = 0

    def wrong(self, at: int, message: str) -> UsageError:
        """The error at a character, counted from 0."""
        place = f'"{self.file}":{self.line}:{at + 1}' if self.file else f'--map "{self.text}", character {at + 1}'
        return UsageError(f"{place}: {message}")


class MappedName(NamedTuple):
    """A module path with a place in its text; `*` matches one level."""

    path: str
    at: int

    def matches(self, target: str) -> tuple[tuple[str, ...], str] | None:
        """The levels that match `*`, and the rest of a target after the path; None if the path does not match."""
        levels = r"\.".join("([^.]+)" if level == "*" else re.escape(level) for level in self.path.split("."))
        found = re.fullmatch(rf"{levels}((?:\..*)?)", target)
        return None if found is None else (found.groups()[:-1], found.groups()[-1])

    def filled(self, levels: Sequence[str]) -> str:
        """The path with its `*` replaced."""
        values = iter(levels)
        return ".".join(next(values) if level == "*" else level for level in self.path.split("."))


class Fusion(NamedTuple):
    """Projections that are one module in one run and several in the other.

    Attributes:
        source: as it was given.
        whole: the module that is all of them.
        parts: the modules in the order in which they are in it.
        leaf: the only leaf that is meant; empty for all.
        dim: the axis along which they are joined; None for that of a Linear.
        groups: how often the parts alternate along it, such as once for each head.
        splits_first: whether the first run has the parts.
    """

    source: MapText
    whole: MappedName
    parts: tuple[MappedName, ...]
    leaf: str
    dim: int | None
    groups: int
    splits_first: bool


def parse_mappings(texts: Sequence[str]) -> tuple[list[Rename], list[Fusion]]:
    """Parse the mappings of a comparison; `@FILE` means the lines of a file.

    Raises:
        UsageError: one of them cannot be read; with its place.
    """
    sources = [source for text in texts for source in _sources(text)]
    fused = [source for source in sources if "+" in source.text or _OPTIONS.search(source.text)]
    return [_rename(source) for source in sources if source not in fused], [_fusion(source) for source in fused]


def _sources(text: str) -> Iterator[MapText]:
    if not text.startswith("@"):
        yield MapText(text)
        return
    try:
        lines = read_plain(Path(text[1:])).decode().splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f'--map "{text}": the file cannot be read: {error}') from error
    for number, line in enumerate(lines, 1):
        if line.partition("#")[0].strip():
            yield MapText(line.partition("#")[0].rstrip(), text[1:], number)


def _rename(source: MapText) -> Rename:
    try:
        return parse_rename(source.text.strip())
    except UsageError as error:
        if not source.file:
            raise
        raise source.wrong(0, str(error)) from error


def _fusion(source: MapText) -> Fusion:
    options = _OPTIONS.search(source.text)
    text = source.text[: options.start()] if options else source.text
    left, equals, right = text.partition("=")
    if not equals:
        raise source.wrong(len(text), "`=` and the name in the other run are missing")
    (one, leaf), (other, other_leaf) = _side(source, left, 0), _side(source, right, len(left) + 1)
    if (len(one) > 1) == (len(other) > 1):
        at, found = (
            (len(left) + 1, "both sides have several modules") if len(one) > 1 else (len(text), "no side has several modules (`A+B`)")
        )
        raise source.wrong(at, f"{found}; a fusion has one on one side and several on the other, such as `qkv=q+k+v`")
    if leaf != other_leaf:
        raise source.wrong(len(left) + 1, f"the leaf `{other_leaf}` differs from `{leaf}`; both sides of a fusion have the same one")
    whole, parts = (one[0], other) if len(other) > 1 else (other[0], one)
    for name in parts:
        if name.path.count("*") != whole.path.count("*"):
            raise source.wrong(name.at, f"`{name.path}` has another number of `*` than `{whole.path}`")
    values = _options(source, options.start() + 1, options[1]) if options else {}
    groups = values.get("groups", 1)
    if groups < 1:
        raise source.wrong(source.text.index("groups"), "`groups` is at least 1")
    return Fusion(source, whole, tuple(parts), leaf, values.get("dim"), groups, len(one) > 1)


def _side(source: MapText, text: str, start: int) -> tuple[list[MappedName], str]:
    """The modules of one side, and the leaf after the last."""
    paths, _, leaf = text.partition(":")
    found = []
    for path in paths.split("+"):
        name = path.strip()
        at = start + len(path) - len(path.lstrip())
        if not name or any(not level for level in name.split(".")):
            raise source.wrong(at, f"`{name}` is not a module path" if name else "a module path is missing")
        found.append(MappedName(name, at))
        start += len(path) + 1
    return found, leaf.strip()


def _options(source: MapText, start: int, text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for option in text.split(","):
        name, equals, value = (part.strip() for part in option.partition("="))
        if name not in OPTIONS:
            hint = nearest(name, OPTIONS) or "the options are `dim` and `groups`"
            raise source.wrong(start, f"`{name}` is not an option of a fusion; {hint}")
        if not equals or not re.fullmatch(r"-?[0-9]{1,4}", value):
            raise source.wrong(start, f"`{name}` takes a number, such as `{name}={1 if name == 'dim' else 12}`, not `{value}`")
        if name in found:
            raise source.wrong(start, f"`{name}` is given twice")
        found[name] = int(value)
        start += len(option) + 1
    return found
