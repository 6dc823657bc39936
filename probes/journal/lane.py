"""The short way into a journal, for small tensors that are like the one before."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from probes.journal.record import ENTRY, PAYLOAD_ALIGNMENT, EntryFlag
from probes.journal.turns import Turns
from probes.journal.write_buffer import Gather, memory

Lane = Callable[[Any, int, int, int, int], bool]
"""Takes a tensor, its step, microstep, call and backward; whether its bytes were copied."""

T = TypeVar("T")

_REMEMBERED = 64  # addresses, and places, that a lane knows at most

_pack_entry = ENTRY.pack_into


def lane(gather: Gather, turns: Turns, descriptor: int, like: Any) -> Lane | None:
    """What takes the small captures of one descriptor in a few operations.

    Args:
        gather: where captures wait for their frame.
        turns: who may touch it.
        descriptor: the captures' descriptor.
        like: a dense tensor on the host, of the descriptor's dtype and shape.

    Returns:
        A function that copies a tensor's bytes before it returns, or returns False: where the tensor is not dense, on the host
        and of the same dtype and shape, or where it has to wait for room or for its turn. None where a tracer is set, whose
        calls would come in between.
    """
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return None
    kind, dtype, shape, nbytes = type(like), like.dtype, like.shape, like.nbytes
    payload, table, last_row, row_bytes = gather.payload, gather.table, gather.last_row, ENTRY.size
    last_start, padded = gather.room - nbytes, -(-nbytes // PAYLOAD_ALIGNMENT) * PAYLOAD_ALIGNMENT
    flags = int(EntryFlag.INLINE)
    sources: dict[int, memoryview] = {}  # by address: an allocator gives the values of every step the same few
    places: dict[int, slice] = {}  # by start: the hooks of every step come in the same order

    def take(tensor: Any, step: int, microstep: int, call: int, backward: int) -> bool:
        try:
            # A sparse, nested or wrapped tensor raises at one of these.
            if (
                type(tensor) is not kind
                or tensor.dtype is not dtype
                or not tensor.is_cpu
                or not tensor.is_contiguous()
                or tensor.is_neg()
                or tensor.shape != shape
            ):
                return False
            address = tensor.data_ptr()
        except RuntimeError:
            return False
        source = sources.get(address)
        if source is None:
            if not address:
                return False
            source = _remember(sources, address, memory(address, nbytes))
        start = gather.fill
        place = places.get(start)
        if place is None:
            if start > last_start:
                return False
            place = _remember(places, start, slice(start, start + nbytes))
        row = gather.row
        # From here until the entry is packed nothing is called or allocated that could let others in; see `Turns`.
        if turns.held or gather.fill != start or row > last_row:
            return False
        payload[place] = source
        gather.fill = start + padded
        gather.row = row + row_bytes
        try:
            _pack_entry(table, row, descriptor, flags, step, microstep, call, backward, start)
        except struct.error:
            gather.fill, gather.row = start, row
            raise
        return True

    return take


def _remember(known: dict[int, T], key: int, value: T) -> T:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[key] = value
    return value
