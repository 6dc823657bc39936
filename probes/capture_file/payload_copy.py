"""Move payloads from a journal into a sealed file in one sequential pass, and compute their digests."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from probes.capture_file.grouped import JournalSeries
from probes.capture_file.layout import PlacedSeries
from probes.digest import Buffer, Hasher

# Larger than a digest block, so that a larger capture is always one whole block.
WINDOW = 2 << 20
WIDE_WINDOW = 64 << 20
_SMALL = 32 * 1024

_MOVE = np.dtype([("series", "<u4"), ("index", "<u4"), ("size", "<i8"), ("source", "<i8"), ("target", "<i8")])


class BlockHashes:
    """The block digests of one series, fed with runs of captures in any order.

    What comes in clock order is hashed as it comes; a block whose captures came otherwise is left to `missing`.
    """

    def __init__(self, ends: Sequence[int]) -> None:
        self._ends = ends
        self._done: list[bytes | None] = [None] * len(ends)
        self._open: dict[int, tuple[Hasher, int]] = {}
        self._missing: set[int] = set()

    def add(self, first: int, sizes: Sequence[int], data: memoryview) -> None:
        """Add whole captures that are consecutive in clock order, from index `first` on."""
        last, at, index = first + len(sizes), 0, first
        while index < last:
            block = bisect_right(self._ends, index)
            stop = min(self._ends[block], last)
            size = sum(sizes[index - first : stop - first])
            self._take(block, index, stop, data[at : at + size])
            at, index = at + size, stop

    def put(self, index: int, digest: bytes) -> None:
        """Add the digest of a capture that is one whole block."""
        self._done[bisect_right(self._ends, index)] = digest

    def missing(self) -> Iterator[tuple[int, range]]:
        """The blocks without a digest yet, and their captures."""
        for block in sorted(self._missing):
            yield block, range(self._ends[block - 1] if block else 0, self._ends[block])

    def settle(self, block: int, digest: bytes) -> None:
        """Add the digest of a block that was missing."""
        self._done[block] = digest

    def all(self) -> bytes:
        """All block digests, 32 bytes each."""
        return b"".join(digest for digest in self._done if digest is not None)

    def _take(self, block: int, index: int, stop: int, data: memoryview) -> None:
        begin = self._ends[block - 1] if block else 0
        if block in self._missing:
            return
        hasher, due = self._open.pop(block, (None, begin))
        if due != index:
            self._missing.add(block)
            return
        hasher = hasher or blake3()
        hasher.update(data)
        if stop == self._ends[block]:
            self._done[block] = hasher.digest()
        else:
            self._open[block] = (hasher, stop)


def copy_payloads(source: int, target: int, places: Sequence[PlacedSeries]) -> list[bytes]:
    """Copy the payloads of all series to their places.

    Args:
        source: descriptor of the journal.
        target: descriptor of the sealed file.
        places: the series, each contiguous in the target.

    Returns:
        The block digests of each series.
    """
    moves = _moves(places)
    hashes = [BlockHashes(place.block_ends) for place in places]
    _CopyPass(source, target, moves, hashes).run()
    for place, blocks in zip(places, hashes, strict=True):
        for block, captures in blocks.missing():
            blocks.settle(block, _hash(source, place.series, captures))
    return [blocks.all() for blocks in hashes]


def payloads(source: int, series: JournalSeries, captures: range) -> Iterator[bytes]:
    """The bytes of some captures of a series, one after the other, in pieces of at most 2 MiB."""
    sizes, offsets = series.sizes[captures.start : captures.stop].tolist(), series.offsets[captures.start : captures.stop].tolist()
    for size, offset in zip(sizes, offsets, strict=True):
        for at in range(0, size, WINDOW):
            yield _read(source, offset + at, min(WINDOW, size - at))


def write_all(target: int, data: Buffer, offset: int) -> None:
    """Write some bytes, with as many system calls as necessary."""
    view = memoryview(data).cast("B")
    while len(view):
        taken = os.pwrite(target, view, offset)
        view, offset = view[taken:], offset + taken


class _CopyPass:
    """One pass over a journal in windows, with one buffer."""

    def __init__(self, source: int, target: int, moves: NDArray[Any], hashes: list[BlockHashes]) -> None:
        self._source = source
        self._target = target
        self._moves = moves
        self._hashes = hashes
        mean = int(moves["size"].mean()) if len(moves) else 0
        self._room = WIDE_WINDOW if mean < _SMALL else WINDOW
        # New memory costs a page fault per 4 KiB; the pass is fast because one buffer stays in the cache.
        self._buffer = np.empty(self._span(), np.uint8).data

    def run(self) -> None:
        """Move everything."""
        starts, ends = self._moves["source"], self._moves["source"] + self._moves["size"]
        furthest = np.maximum.accumulate(ends) if len(ends) else ends
        first = 0
        while first < len(starts):
            last = int(np.searchsorted(furthest, starts[first] + self._room, "right"))
            if last <= first:
                self._stream(self._moves[first])
                first += 1
            else:
                self._window(first, last, int(starts[first]), int(furthest[last - 1]))
                first = last

    def _span(self) -> int:
        if not len(self._moves):
            return 0
        span = int((self._moves["source"] + self._moves["size"]).max() - self._moves["source"][0])
        return min(self._room, span)

    def _window(self, first: int, last: int, begin: int, end: int) -> None:
        """Read a part of the journal at once and write its captures; adjacent ones are written together."""
        data = self._buffer[: end - begin]
        _read_into(self._source, data, begin)
        moves = self._moves[first:last]
        moves = moves[np.lexsort((moves["index"], moves["series"]))]
        breaks = (np.diff(moves["series"]) != 0) | (np.diff(moves["index"].astype(np.int64)) != 1)
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(moves)]
        series, indices, sizes = moves["series"].tolist(), moves["index"].tolist(), moves["size"].tolist()
        starts, targets = (moves["source"] - begin).tolist(), moves["target"].tolist()
        for low, high in pairwise(edges):
            run = memoryview(_join(data, starts[low:high], sizes[low:high]))
            self._hashes[series[low]].add(indices[low], sizes[low:high], run)
            write_all(self._target, run, targets[low])

    def _stream(self, move: Any) -> None:
        """Move one capture that is larger than the buffer."""
        source, target, size = int(move["source"]), int(move["target"]), int(move["size"])
        hasher = blake3()
        for at in range(0, size, len(self._buffer)):
            piece = self._buffer[: size - at]
            _read_into(self._source, piece, source + at)
            hasher.update(piece)
            write_all(self._target, piece, target + at)
        self._hashes[int(move["series"])].put(int(move["index"]), hasher.digest())


def _moves(places: Sequence[PlacedSeries]) -> NDArray[Any]:
    """Source and target offset of each payload, in the order of the journal."""
    parts = []
    for number, place in enumerate(places):
        part = np.empty(place.series.count, _MOVE)
        sizes = place.series.sizes
        part["series"], part["index"], part["size"] = number, np.arange(len(part)), sizes
        part["source"], part["target"] = place.series.offsets, np.cumsum(sizes) - sizes + (place.offset or 0)
        parts.append(part)
    moves = np.concatenate(parts) if parts else np.empty(0, _MOVE)
    return moves[np.argsort(moves["source"], kind="stable")]


def _join(data: memoryview, starts: list[int], sizes: list[int]) -> Buffer:
    if len(starts) == 1:
        return data[starts[0] : starts[0] + sizes[0]]
    return b"".join([data[start : start + size] for start, size in zip(starts, sizes, strict=True)])


def _hash(source: int, series: JournalSeries, captures: range) -> bytes:
    hasher = blake3()
    for piece in payloads(source, series, captures):
        hasher.update(piece)
    return hasher.digest()


def _read(source: int, offset: int, size: int) -> bytes:
    piece = bytearray(size)
    _read_into(source, memoryview(piece), offset)
    return bytes(piece)


def _read_into(source: int, room: memoryview, offset: int) -> None:
    while len(room):
        taken = os.preadv(source, [room], offset)
        if not taken:
            raise OSError("the journal is shorter than its captures")
        room, offset = room[taken:], offset + taken
