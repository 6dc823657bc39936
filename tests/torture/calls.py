"""The log that the shim writes of a run: every call that changed the disk, in order."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.torture.shim import NOTE, Calls

NUMBERS = struct.Struct("<5q")
FAILED = 1024


class Call(NamedTuple):
    """One call.

    Attributes:
        kind: which of `Calls`, or NOTE.
        path: the file; of a NOTE the word.
        other: the second path of a rename or a link.
        offset: where a write went (-1 for the end), or the new size of a file.
        data: what was written.
        failed: whether the system refused it.
    """

    kind: int
    path: str
    other: str
    offset: int
    data: bytes
    failed: bool


def read(path: Path) -> Iterator[Call]:
    """The calls of a log; a last record that a kill has cut is left out."""
    raw = path.read_bytes()
    at = 0
    while at + NUMBERS.size <= len(raw):
        kind, offset, size, first, second = NUMBERS.unpack_from(raw, at)
        at += NUMBERS.size
        if at + first + second + size > len(raw):
            return
        names = raw[at : at + first].decode(), raw[at + first : at + first + second].decode()
        at += first + second
        yield Call(kind & ~FAILED, *names, offset, raw[at : at + size], bool(kind & FAILED))
        at += size


def counted(path: Path, kinds: Calls) -> int:
    """How many calls of some kinds a log holds."""
    return sum(bool(call.kind & kinds) for call in read(path) if call.kind != NOTE)
