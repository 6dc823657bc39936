"""Names of a series: of its group in a file, and on the command line."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

from probes.clock import SeriesKey
from probes.errors import FileRefused, UsageError

EMPTY = "%"
SEPARATORS = frozenset("/%:@~")


class SeriesAddress(NamedTuple):
    """A series within one file.

    Attributes:
        key: its name.
        dtype: torch's name of the dtype, if two series have the same key; else empty.
    """

    key: SeriesKey
    dtype: str = ""

    def __str__(self) -> str:
        """`probe/target:leaf[@phase][~dtype]`, as `probes ls` prints it and `probes show` takes it."""
        return str(self.key) + (f"~{self.dtype}" if self.dtype else "")


class Word(NamedTuple):
    """The parts of a series name from the command line; None for omitted parts."""

    probe: str
    target: str | None
    leaf: str | None
    phase: str | None
    dtype: str | None


def parse_group(probe: str, name: str) -> SeriesAddress:
    """The address of the series whose name a group has.

    Args:
        probe: name of the group above it.
        name: escaped `target:leaf[@phase][~dtype]`.

    Raises:
        FileRefused: `not-a-capture-file`: no series is called so.
    """
    rest, _, dtype = name.partition("~")
    rest, _, phase = rest.partition("@")
    target, colon, leaf = rest.partition(":")
    try:
        probe, target, leaf, phase, dtype = (
            "" if part == "%" else unquote(part, errors="strict") for part in (probe, target, leaf, phase, dtype)
        )
    except UnicodeDecodeError:
        colon = ""
    if not colon:
        raise FileRefused("not-a-capture-file", f'"{probe}/{name}" is not the name of a series')
    return SeriesAddress(SeriesKey(probe, target, leaf, phase or "train"), dtype)


def parse_word(text: str) -> Word:
    """Parse `probe[/target[:leaf]][@phase][~dtype]`.

    The last `:`, `@` and `~` count, so that a target may hold the others.

    Raises:
        UsageError: it is not a text.
    """
    if not isinstance(text, str):
        raise UsageError(f"a series is named by a text such as `probe/target:leaf`; got {text!r}")
    rest, _, dtype = text.rpartition("~") if "~" in text else (text, "", "")
    rest, _, phase = rest.rpartition("@") if "@" in rest else (rest, "", "")
    probe, slash, rest = rest.partition("/")
    target, colon, leaf = rest.rpartition(":") if ":" in rest else (rest, "", "")
    return Word(probe, target if slash else None, leaf if colon else None, phase or None, dtype or None)


def escape(text: str) -> str:
    """Escape a text as one part of a group's name; different texts give different names.

    `/ % : @ ~`, what is not printable and the dots of a text of dots only become `%XX`, one for each byte of UTF-8. The
    empty text becomes `%`.
    """
    if not text:
        return EMPTY
    only_dots = not text.strip(".")
    return "".join(_percent(char) if char in SEPARATORS or only_dots or not char.isprintable() else char for char in text)


def group_name(key: SeriesKey, dtype: str = "") -> str:
    """The name of a series' group in the group of its probe: `target:leaf[@phase][~dtype]`.

    Args:
        key: the series.
        dtype: torch's name, if another series has the same key.
    """
    phase = f"@{escape(key.phase)}" if key.phase != "train" else ""
    return f"{escape(key.target)}:{escape(key.leaf)}{phase}" + (f"~{dtype}" if dtype else "")


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())
