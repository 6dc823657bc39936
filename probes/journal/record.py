"""One record of a journal: its header, the chain of checksums, and its offset."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, IntFlag
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import numpy as np

from probes.digest import Buffer

FORMAT = "journal.v1"
MAGIC = b"PRJ1"
HEADER_BYTES = 64
ALIGNMENT = 64
PAGE = 4096
PAYLOAD_ALIGNMENT = 8
NO_DIGEST = bytes(32)

FIXED = Struct("<IIIIQ")  # step, phase id, entries, annex bytes, global step
ENTRY = Struct("<IIIiIIQ")  # descriptor, flags, step, microstep, call, backward, offset

CAPTURE = np.dtype(
    {
        "names": ["descriptor", "flags", "step", "microstep", "call", "backward", "offset"],
        "formats": ["<u4", "<u4", "<u4", "<i4", "<u4", "<u4", "<u8"],
    }
)
"""An entry as NumPy reads it."""

_FIELDS = Struct("<4sBBHQQI32s")
_CHECK = Struct("<I")


class RecordKind(IntEnum):
    """The kind of a record."""

    HEAD = 1
    DESCRIPTOR = 2
    EXTENT = 3
    FRAME = 4
    END = 5
    SYNC = 6


class FrameFlag(IntFlag):
    """The effects of a frame besides holding captures."""

    COMMIT = 1
    ABORT = 2


class EntryFlag(IntFlag):
    """The properties of a capture."""

    LATE = 1
    INLINE = 2


class RecordHeader(NamedTuple):
    """The fields of a record's header except its check.

    Attributes:
        kind: one of `RecordKind`.
        flags: `FrameFlag` of a frame, else 0.
        sequence: number of the record in its journal, from 0.
        length: bytes of the body.
        checked: leading bytes of the body that the check covers.
        digest: BLAKE3 of the rest of the body, or zeros.
    """

    kind: int
    flags: int
    sequence: int
    length: int
    checked: int
    digest: bytes

    def fields(self) -> bytes:
        """The header without its checksum."""
        return pack_fields(*self)


def pack_fields(kind: int, flags: int, sequence: int, length: int, checked: int, digest: bytes) -> bytes:
    """A header without its checksum, on the fast path; the arguments are those of `RecordHeader`."""
    return _FIELDS.pack(MAGIC, kind, flags, 0, sequence, length, checked, digest)


def place(end: int) -> int:
    """The start of the record after one that ends at `end`."""
    return -(-end // ALIGNMENT) * ALIGNMENT


def extent_place(end: int) -> int:
    """The start of an EXTENT after a record that ends at `end`, so that its payload is aligned to a page."""
    return -(-(end + HEADER_BYTES) // PAGE) * PAGE - HEADER_BYTES


def payload_start(checked: int) -> int:
    """The offset of the payloads of a frame in its body."""
    return -(-checked // PAYLOAD_ALIGNMENT) * PAYLOAD_ALIGNMENT


def link(seed: int, fields: bytes, checked: Iterable[Buffer]) -> int:
    """The check of a record: the CRC-32 of its header and the checked part of its body, seeded with the check before.

    Args:
        seed: the check before; of the first record the CRC-32 of the nonce.
        fields: the header without its check.
        checked: the checked part of the body, in pieces.
    """
    check = crc32(fields, seed)
    for part in checked:
        check = crc32(part, check)
    return check


def seal_header(fields: bytes, check: int) -> bytes:
    """The 64 bytes of a header."""
    return fields + _CHECK.pack(check)


def parse_header(raw: Buffer) -> tuple[RecordHeader, int] | None:
    """A header and its check out of 64 bytes, or None if they cannot be one."""
    magic, kind, flags, reserved, sequence, length, checked, digest = _FIELDS.unpack_from(raw)
    if magic != MAGIC or reserved or checked > length:
        return None
    (check,) = _CHECK.unpack_from(raw, _FIELDS.size)
    return RecordHeader(kind, flags, sequence, length, checked, digest), check
