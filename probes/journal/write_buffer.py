"""Memory for the small captures of a step until one frame takes them to the file."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from probes.digest import Buffer
from probes.journal.record import ENTRY, FIXED, PAYLOAD_ALIGNMENT, payload_start

_MOST_PLACES = 1024
_READABLE = 0x100  # PyBUF_READ
# A PyDLL call keeps the GIL.
_view = ctypes.PyDLL(None).PyMemoryView_FromMemory
_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_view.restype = ctypes.py_object

_pack_fixed = FIXED.pack_into
_PADDING = tuple(bytes(n) for n in range(PAYLOAD_ALIGNMENT))
_BYTES_PER_ROW = 256  # of payload; a buffer of smaller captures is full when its table is
_FEWEST_ROWS = 64


_places: dict[tuple[int, int], memoryview] = {}


def memory(address: int, nbytes: int) -> memoryview:
    """Bytes that stand in this process's memory, to be read; they are not kept alive."""
    view = _places.get((address, nbytes))
    if view is None:  # an allocator gives the values of every step the same few places
        if len(_places) >= _MOST_PLACES:
            _places.clear()
        view = _places[address, nbytes] = _view(address, nbytes, _READABLE)
    return view


class Gather:
    """A table of captures and the payloads of the small ones, in memory that is allocated once.

    Captures are written to it without a method call in between, which is a good part of what one costs.

    Attributes:
        table: the fixed part of a frame, then its entries.
        row: where the next entry goes in `table`.
        last_row: the last place where there is room for one.
        payload: the payloads.
        fill: bytes of payloads so far.
        room: bytes of payloads that fit.
        framed: how many captures were here whose frame stands in the file.
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
        """How many captures are in the table."""
        return (self.row - FIXED.size) // ENTRY.size

    def clear(self) -> None:
        """Forget what was gathered."""
        self.row = FIXED.size
        self.fill = 0

    def frame(self, step: int, phase: int, global_step: int, annex: bytes) -> tuple[Sequence[Buffer], Sequence[Buffer]]:
        """The checked part of a frame of all that is here, and the rest of it; views that the next capture overwrites."""
        row, fill = self.row, self.fill
        _pack_fixed(self.table, 0, step, phase, (row - FIXED.size) // ENTRY.size, len(annex), global_step)
        rows = self._rows[:row]
        payload = (self.payload[:fill],) if fill else ()
        if not annex:
            return (rows,), payload
        lead = row + len(annex)
        return (rows, annex), (_PADDING[payload_start(lead) - lead], *payload) if fill else ()
