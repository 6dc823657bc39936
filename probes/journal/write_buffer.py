"""Memory for the small captures of a step until one frame takes them to the file."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from probes.digest import Buffer
from probes.journal.record import ENTRY, FIXED, PAYLOAD_ALIGNMENT, payload_start

_MOST_VIEWS = 1024
_READABLE = 0x100  # PyBUF_READ
# A PyDLL call keeps the GIL.
_view = ctypes.PyDLL(None).PyMemoryView_FromMemory
_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_view.restype = ctypes.py_object

_pack_fixed = FIXED.pack_into
_PADDING = tuple(bytes(n) for n in range(PAYLOAD_ALIGNMENT))
_BYTES_PER_ROW = 256  # of payload; a buffer of smaller captures is full when its table is
_FEWEST_ROWS = 64


views: dict[int, memoryview] = {}
"""The views of `memory`, by address."""


def memory(address: int, nbytes: int) -> memoryview:
    """A read-only view of bytes in this process's memory; it does not keep them alive.

    Raises:
        ValueError: address 0, which is that of a fake tensor, or of freed storage.
    """
    if not address:
        raise ValueError(f"a capture of {nbytes} bytes has no memory (address 0)")
    view = views.get(address)
    if view is None or len(view) != nbytes:  # an allocator uses the same few addresses for the values of every step
        if len(views) >= _MOST_VIEWS:
            views.clear()
        view = views[address] = _view(address, nbytes, _READABLE)
    return view


class WriteBuffer:
    """A table of captures and the payloads of the small ones, in memory that is allocated once.

    Attributes:
        room: bytes of payloads that fit.
        payload: the memory of the payloads.
        fill: bytes of payloads so far.
        table: the memory of the table.
        row: where the next entry goes in the table.
        last_row: where its last entry may go.
        framed: how many captures were here whose frame is in the file.
    """

    __slots__ = ("_rows", "fill", "framed", "last_row", "payload", "room", "row", "table")

    def __init__(self, buffer_bytes: int) -> None:
        self.room = buffer_bytes // PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT
        self.payload = memoryview(bytearray(self.room))
        self.table = bytearray(FIXED.size + max(buffer_bytes // _BYTES_PER_ROW, _FEWEST_ROWS) * ENTRY.size)
        self._rows = memoryview(self.table)
        self.last_row = len(self.table) - ENTRY.size
        self.row = FIXED.size
        self.fill = 0
        self.framed = 0

    @property
    def entries(self) -> int:
        """The number of captures in the table."""
        return (self.row - FIXED.size) // ENTRY.size

    @property
    def full(self) -> bool:
        """Whether the table is full."""
        return self.row > self.last_row

    def clear(self) -> None:
        """Remove all captures."""
        self.row = FIXED.size
        self.fill = 0

    def frame(self, step: int, phase: int, global_step: int, annex: bytes) -> tuple[Sequence[Buffer], Sequence[Buffer]]:
        """The checksummed part of a frame of all captures, and the rest of it; views that the next capture overwrites."""
        row, fill = self.row, self.fill
        _pack_fixed(self.table, 0, step, phase, self.entries, len(annex), global_step)
        rows = self._rows[:row]
        payload = (self.payload[:fill],) if fill else ()
        if not annex:
            return (rows,), payload
        lead = row + len(annex)
        return (rows, annex), (_PADDING[payload_start(lead) - lead], *payload) if fill else ()
