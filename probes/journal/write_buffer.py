"""Memory for the small captures of a step until one frame takes them to the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probes.digest import Buffer
from probes.journal.record import CAPTURE, ENTRY, FIXED, PAYLOAD_ALIGNMENT, EntryFlag, payload_start

_pack_fixed = FIXED.pack_into
_PADDING = tuple(bytes(n) for n in range(PAYLOAD_ALIGNMENT))
_BYTES_PER_ROW = 256  # of payload; a buffer of smaller captures is full when its table is
_FEWEST_ROWS = 64

Kept = tuple["Kept | None", bytes]
"""Rows that were set aside, after those that were set aside before them."""


class WriteBuffer:
    """A table of captures and the payloads of the small ones, in memory that is allocated once.

    Attributes:
        room: bytes of payloads that fit.
        payload: the memory of the payloads.
        fill: bytes of payloads so far.
        table: the memory of the table.
        row: where the next entry goes in the table.
        last_row: where its last entry may go.
        kept: the entries of captures whose bytes are in the file already; None if there are none.
        kept_rows: how many these are.
    """

    __slots__ = ("_rows", "fill", "kept", "kept_rows", "last_row", "payload", "room", "row", "table")

    def __init__(self, buffer_bytes: int) -> None:
        self.room = buffer_bytes // PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT
        self.payload = memoryview(bytearray(self.room))
        self.table = bytearray(FIXED.size + max(buffer_bytes // _BYTES_PER_ROW, _FEWEST_ROWS) * ENTRY.size)
        self._rows = memoryview(self.table)
        self.last_row = len(self.table) - ENTRY.size
        self.row = FIXED.size
        self.fill = 0
        self.kept: Kept | None = None
        self.kept_rows = 0

    @property
    def entries(self) -> int:
        """The number of captures."""
        return self.kept_rows + (self.row - FIXED.size) // ENTRY.size

    @property
    def full(self) -> bool:
        """Whether the table is full."""
        return self.row > self.last_row

    def clear(self) -> None:
        """Remove all captures."""
        self.row = FIXED.size
        self.fill = 0
        self.kept_rows = 0
        self.kept = None

    def keep(self, offset: int) -> None:
        """Set all entries aside, whose payloads are in the file now; the memory is free again.

        Args:
            offset: where the payloads begin in the file; not used if there are none.
        """
        rows = self._rows[FIXED.size : self.row]
        kept = (self.kept, bytes(rows) if not self.fill else _shifted(rows, offset, EntryFlag.INLINE))
        count = self.entries
        # An interrupt finds all of these stores done, or none: Python handles signals at calls.
        self.kept = kept
        self.kept_rows = count
        self.row = FIXED.size
        self.fill = 0

    def take(self, other: WriteBuffer) -> None:
        """Take over the captures that another buffer has set aside."""
        kept = self.kept
        for rows in other.tables(0):
            kept = (kept, bytes(rows))
        self.kept, self.kept_rows = kept, self.kept_rows + other.kept_rows
        other.clear()

    def tables(self, shift: int) -> list[Buffer]:
        """The entries in order.

        Args:
            shift: bytes of other payloads that come before those of this buffer in its frame.
        """
        rows = self._rows[FIXED.size : self.row]
        found: list[Buffer] = [_shifted(rows, shift) if shift else rows]
        kept = self.kept
        while kept is not None:
            kept, piece = kept
            found.append(piece)
        return found[::-1]

    def frame(
        self, step: int, phase: int, global_step: int, annex: bytes, late: WriteBuffer | None = None
    ) -> tuple[Sequence[Buffer], Sequence[Buffer]]:
        """The checksummed part of a frame of all captures, and the rest of it; views that the next capture overwrites.

        Args:
            step: as in the frame.
            phase: likewise.
            global_step: likewise.
            annex: likewise.
            late: more captures, whose entries come first.
        """
        row, fill, count = self.row, self.fill, self.entries
        payload: tuple[Buffer, ...] = (self.payload[:fill],) if fill else ()
        tables: tuple[Buffer, ...] = (self._rows[:row],)
        if self.kept is not None or late is not None:
            tables = (self._rows[: FIXED.size], *(late.tables(fill) if late is not None else ()), *self.tables(0))
        if late is not None:
            count += late.entries
            payload = (*payload, late.payload[: late.fill]) if late.fill else payload
        _pack_fixed(self.table, 0, step, phase, count, len(annex), global_step)
        if not annex:
            return tables, payload
        lead = FIXED.size + count * ENTRY.size + len(annex)
        return (*tables, annex), (_PADDING[payload_start(lead) - lead], *payload) if payload else ()


def _shifted(rows: Buffer, by: int, cleared: int = 0) -> bytes:
    """Entries whose payloads in the frame are at other offsets; with `cleared`, in the file and no longer in the frame."""
    found = np.frombuffer(bytearray(rows), CAPTURE)
    inline = (found["flags"] & EntryFlag.INLINE) != 0
    found["offset"][inline] += np.uint64(by)
    found["flags"][inline] &= ~np.uint32(cleared)
    return found.tobytes()
