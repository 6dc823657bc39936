"""The records of a journal in order, as far as each one is linked to the one before by its checksum."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from blake3 import blake3

from probes.digest import canonical
from probes.errors import FileRefused
from probes.journal.record import FORMAT, HEADER_BYTES, MAGIC, NO_DIGEST, RecordHeader, RecordKind, extent_place, link, parse_header, place

_PIECE = 1 << 20
_LOOK_AHEAD = 2 * 4096  # one read covers both possible places of a record, mostly with its table
_LARGEST_TORN_HEAD = 64 << 20


class JournalBytes:
    """Bounded reads of a file; a memory map would crash if the file shrinks meanwhile.

    Attributes:
        path: the file.
        size: its bytes when it was opened; nothing after them is read.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self.path = path
        self.size = status.st_size
        self._descriptor = descriptor
        self._ahead = b""
        self._ahead_at = 0
        if not stat.S_ISREG(status.st_mode):
            raise self.refused("not-a-journal", "is not a regular file")

    def read(self, offset: int, length: int) -> bytes:
        """Some bytes of the file, fewer at its end."""
        length = max(min(length, self.size - offset), 0)
        start = offset - self._ahead_at
        if start >= 0 and start + length <= len(self._ahead):
            return self._ahead[start : start + length]
        if length <= _LOOK_AHEAD:
            self._ahead, self._ahead_at = os.pread(self._descriptor, _LOOK_AHEAD, offset), offset
            return self._ahead[:length]
        return b"".join(os.pread(self._descriptor, size, at) for at, size in _pieces(offset, offset + length))

    def grow(self) -> None:
        """Include the bytes that were appended since the file was opened, or since the last call."""
        self.size = os.fstat(self._descriptor).st_size
        self._ahead, self._ahead_at = b"", 0

    def digest(self, start: int, stop: int) -> bytes:
        """BLAKE3 of a part of the file, read in pieces."""
        hasher = blake3()
        for at, size in _pieces(start, stop):
            hasher.update(os.pread(self._descriptor, size, at))
        return hasher.digest()

    def refused(self, code: str, what: str) -> FileRefused:
        """The error for a fault of the file."""
        return FileRefused(code, f'"{self.path}" {what}')

    def json(self, raw: bytes) -> dict[str, Any]:
        """A JSON object in the file.

        Raises:
            FileRefused: it is not a JSON object.
        """
        value = _text(raw)
        if value is None:
            raise self.refused("journal-inconsistent", "has a record whose text is not a JSON object")
        return value


def _pieces(start: int, stop: int) -> list[tuple[int, int]]:
    return [(at, min(_PIECE, stop - at)) for at in range(start, stop, _PIECE)]


class Proof(IntEnum):
    """The proof for the part of a body that the chain does not cover."""

    DAMAGED = 0
    UNCHECKED = 1
    WHOLE = 2


class Record(NamedTuple):
    """A record that chains.

    Attributes:
        header: its header.
        check: its check, which the next one is seeded with.
        body: where its body starts in the file.
        checked: the checked part of the body.
        proof: what is known about the rest of it.
    """

    header: RecordHeader
    check: int
    body: int
    checked: bytes
    proof: Proof = Proof.UNCHECKED

    @property
    def stop(self) -> int:
        """The end of the body in the file."""
        return self.body + self.header.length


class RecordReader:
    """The records of a journal after its HEAD that chain, to be iterated over once; again for those that were appended since.

    A record chains by its header and its tables. One whose payloads are damaged is given out as such, unless it is the last.

    Args:
        source: the bytes of the journal.
        largest_digested: bytes of the largest payloads that are read to compare their digest.

    Attributes:
        head: the JSON of HEAD.
        end: where the last good record ends, so far.
        torn: whether what follows it looks like a record that is not whole; known when the iteration is over.
    """

    def __init__(self, source: JournalBytes, largest_digested: int = 1 << 62) -> None:
        record, self.head = _head(source)
        self.torn = False
        self._source = source
        self._last = record
        self._every_digest = self.head.get("durability") == "power"
        self._largest_digested = largest_digested

    @property
    def end(self) -> int:
        """The end of the last good record so far."""
        return self._last.stop

    def __iter__(self) -> Iterator[Record]:
        record = self._next()
        while record is not None:
            before, self._last = self._last, record
            proof = self._proof(record)
            following = self._next() if record.header.kind != RecordKind.END else None
            if proof is Proof.DAMAGED and following is None:  # a write that was never finished
                self._last, self.torn = before, True
                return
            yield record._replace(proof=proof)
            if record.header.kind == RecordKind.END:
                return
            record = following
        # After the last record of a recycled journal there are old bytes without meaning.
        self.torn = self._source.size > max(self.end, self._recycled())

    def _next(self) -> Record | None:
        end, seed, sequence = self.end, self._last.check, self._last.header.sequence + 1
        for offset in (place(end), extent_place(end)):
            record = _record(self._source, offset, seed, sequence)
            if record and offset == (extent_place if record.header.kind == RecordKind.EXTENT else place)(end):
                return record
        return None

    def _proof(self, record: Record) -> Proof:
        start = record.body + record.header.checked
        if start == record.stop:
            return Proof.WHOLE
        if record.stop - start > self._largest_digested:
            return Proof.UNCHECKED
        if record.header.digest == NO_DIGEST:
            return Proof.DAMAGED if self._every_digest else Proof.UNCHECKED
        return Proof.WHOLE if self._source.digest(start, record.stop) == record.header.digest else Proof.DAMAGED

    def _recycled(self) -> int:
        size = self.head.get("recycled_bytes", 0)
        return size if isinstance(size, int) else 0


def _record(source: JournalBytes, offset: int, seed: int, sequence: int) -> Record | None:
    raw = source.read(offset, HEADER_BYTES)
    parsed = parse_header(raw) if len(raw) == HEADER_BYTES else None
    if parsed is None:
        return None
    header, check = parsed
    body = offset + HEADER_BYTES
    if header.sequence != sequence or header.length > source.size - body:
        return None
    checked = source.read(body, header.checked)
    return Record(header, check, body, checked) if link(seed, header.fields(), (checked,)) == check else None


def _head(source: JournalBytes) -> tuple[Record, dict[str, Any]]:
    raw = source.read(0, HEADER_BYTES)
    if not MAGIC.startswith(raw[: len(MAGIC)]) and raw.strip(b"\0"):
        raise source.refused("not-a-journal", f"does not start with `{MAGIC.decode()}`")
    parsed = parse_header(raw) if len(raw) == HEADER_BYTES else None
    length = parsed[0].length if parsed else 0
    if parsed is None or HEADER_BYTES + length > source.size:
        raise _torn_head(source, "is longer than the file")
    text = _text(source.read(HEADER_BYTES, length))
    if text is not None and text.get("format") != FORMAT:
        raise source.refused("unknown-format", f"has the format `{text.get('format')}`; this release reads `{FORMAT}`")
    try:
        record = _record(source, 0, crc32(bytes.fromhex(text["nonce"])), 0) if text else None
    except (KeyError, TypeError, ValueError):
        raise source.refused("not-a-journal", "has a HEAD record without a nonce") from None
    if text is None or record is None or record.header.kind != RecordKind.HEAD or record.header.checked != length:
        raise _torn_head(source, "does not match its checksum")
    return record, text


def _torn_head(source: JournalBytes, what: str) -> FileRefused:
    # Without this check, a flipped bit in the HEAD of a good journal would look like a journal without commits.
    if source.size <= _LARGEST_TORN_HEAD and source.read(HEADER_BYTES, source.size).find(MAGIC) < 0:
        return source.refused("journal-empty", "ends inside its HEAD record: it has no committed step")
    return source.refused("not-a-journal", f"has a HEAD record that {what}")


def _text(raw: bytes) -> dict[str, Any] | None:
    """A JSON object, or None for anything else."""
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
        if b"\\ud" in raw.lower():
            canonical(value)  # half of a surrogate pair can be read, but never be written again
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
