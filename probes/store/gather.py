"""Memory for the small captures of a step until one frame takes them to the file."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from probes.digest import Buffer
from probes.store.record import ENTRY, FIXED, PAYLOAD_ALIGNMENT, payload_start

_PADDING = tuple(bytes(n) for n in range(PAYLOAD_ALIGNMENT))
_BYTES_PER_ROW = 256  # of payload; a buffer of smaller captures is full when its table is
_FEWEST_ROWS = 64


class Gather:
    """A table of captures and the payloads of the small ones, in memory that is allocated once.

    `Journal.add` writes to it without a method call in between, which is a good part of what a capture costs.

    Attributes:
        table: the fixed part of a frame, then its entries.
        row: where the next entry goes in `table`.
        last_row: the last place where there is room for one.
        payload: the payloads.
        base: their address.
        fill: bytes of payloads so far.
        room: bytes of payloads that fit.
    """

    __slots__ = ("_pinned", "base", "fill", "last_row", "payload", "room", "row", "table")

    def __init__(self, buffer_bytes: int) -> None:
        self.room = buffer_bytes // PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT
        memory = bytearray(self.room)
        self.payload = memoryview(memory)
        self._pinned = ctypes.c_char.from_buffer(memory)  # keeps the memory where `base` says it is
        self.base = ctypes.addressof(self._pinned)
        self.table = bytearray(FIXED.size + max(buffer_bytes // _BYTES_PER_ROW, _FEWEST_ROWS) * ENTRY.size)
        self.last_row = len(self.table) - ENTRY.size
        self.row = FIXED.size
        self.fill = 0

    @property
    def entries(self) -> int:
        """How many captures are in the table."""
        return (self.row - FIXED.size) // ENTRY.size

    def clear(self) -> None:
        """Forget what was gathered."""
        self.row = FIXED.size
        self.fill = 0

    def frame(self, step: int, phase: int, global_step: int, annex: bytes) -> tuple[Sequence[Buffer], Sequence[Buffer]]:
        """The checked part of a frame of all that is here, and the rest of it; views that the next capture overwrites."""
        FIXED.pack_into(self.table, 0, step, phase, self.entries, len(annex), global_step)
        checked = (memoryview(self.table)[: self.row], annex)
        if not self.fill:
            return checked, ()
        lead = self.row + len(annex)
        return checked, (_PADDING[payload_start(lead) - lead], self.payload[: self.fill])
