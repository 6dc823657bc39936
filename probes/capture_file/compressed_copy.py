"""Move payloads from a journal into a sealed file chunk by chunk, with compression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from probes.capture_file.codecs import Compression, chunks
from probes.capture_file.grouped import JournalSeries
from probes.capture_file.layout import Layout, PlacedSeries
from probes.capture_file.payload_copy import payloads
from probes.digest import BlockDigests


def copy_compressed(source: int, layout: Layout, places: Sequence[PlacedSeries], how: Compression) -> list[bytes]:
    """Write the payloads of all series, chunk by chunk in canonical order.

    Args:
        source: descriptor of the journal.
        layout: the file.
        places: the series in the file.
        how: the compression that their datasets were made with.

    Returns:
        The block digests of each series.
    """
    return [_copy_series(source, layout, place, how) for place in places]


def _copy_series(source: int, layout: Layout, place: PlacedSeries, how: Compression) -> bytes:
    hashes = BlockDigests()
    payload = _Stream(_hashed(source, place.series, hashes))
    values = layout.values(place)
    if place.offset is None and prod(values.shape):
        chunk, itemsize = values.get_create_plist().get_chunk(), values.get_type().get_size()
        whole = prod(chunk) * itemsize
        for corner, elements in chunks(values.shape, chunk):
            content = payload.take(elements * itemsize)
            values.write_direct_chunk(corner, how.encode(content.ljust(whole, b"\0"), itemsize))
    payload.finish()
    return hashes.finish()


def _hashed(source: int, series: JournalSeries, hashes: BlockDigests) -> Iterator[bytes]:
    for index, size in enumerate(series.sizes.tolist()):
        hashes.begin(size)
        for piece in payloads(source, series, range(index, index + 1)):
            hashes.update(piece)
            yield piece


class _Stream:
    """Splits pieces of bytes into pieces of other sizes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def take(self, size: int) -> bytes:
        """The next bytes, in the exact number."""
        parts, length = [self._left], len(self._left)
        while length < size:
            parts.append(next(self._pieces))
            length += len(parts[-1])
        data = b"".join(parts)
        self._left = data[size:]
        return data[:size]

    def finish(self) -> None:
        """Check that no bytes are left; captures without bytes may follow."""
        if self._left or any(self._pieces):
            raise AssertionError("BUG: the chunks of a series do not take all of its bytes")
