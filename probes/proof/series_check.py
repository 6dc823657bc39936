"""Verify one series of a sealed file: every byte, clock and shape against its digests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.read import SealedPart
from probes.capture_file.series_part import SeriesPart, shape_of, sizes
from probes.digest import BLOCK_BYTES, Hasher, blocks, series_hex, shape_row
from probes.proof.finding import Finding
from probes.signature import DTYPES

_CLOCK = np.dtype([("epoch", "<u4"), ("step", "<u4"), ("microstep", "<i4"), ("call", "<u4"), ("backward", "<u4"), ("rank", "<u4")])
_SLICE_BYTES = 4 << 20
MOST_STEPS = 16


@dataclass(frozen=True)
class SeriesDigests:
    """The digests of one series, computed from its bytes and as its file states them.

    Attributes:
        part: the series.
        ends: as `block_ends` gives them.
        blocks: (blocks, 32) digests of the blocks, computed.
        stored_blocks: the same, as the file states them.
        computed: the series digest, computed.
        stored: the series digest that the file states.
    """

    part: SealedPart
    ends: list[int]
    blocks: NDArray[np.uint8]
    stored_blocks: NDArray[np.uint8]
    computed: str
    stored: str

    @classmethod
    def of(cls, part: SealedPart, stored: str) -> SeriesDigests:
        """Read every byte of a series.

        Args:
            part: the series.
            stored: the series digest that the file states.

        Raises:
            FileRefused: the series cannot be read.
        """
        ends = block_ends(part)
        blocks = block_digests(part, ends)
        return cls(part, ends, blocks, part.block_digests, digest_of(part, blocks), stored)

    @property
    def blocks_agree(self) -> bool:
        """Whether the stored block digests equal the computed ones."""
        return np.array_equal(self.blocks, self.stored_blocks)

    @property
    def agree(self) -> bool:
        """Whether all stored digests equal the computed ones."""
        return self.stored == self.computed and self.blocks_agree


def block_ends(part: SeriesPart) -> list[int]:
    """The end of each digest block of a series, as the index after its last capture."""
    bytes_of = _capture_bytes(part)
    if len(bytes_of) and (bytes_of == bytes_of[0]).all():
        count, size = len(bytes_of), int(bytes_of[0])
        each = -(-BLOCK_BYTES // size) if size else count
        return [*range(each, count, each), count]
    return blocks(bytes_of.tolist())


def _capture_bytes(part: SeriesPart) -> NDArray[np.int64]:
    """(captures,) the number of bytes of each."""
    kind = DTYPES[part.dtype]
    return sizes(part.shapes, part.dtype) * (kind.itemsize // kind.lanes)


def block_digests(part: SealedPart, ends: list[int]) -> NDArray[np.uint8]:
    """(blocks, 32) the digests of the blocks, computed from the bytes.

    Args:
        part: the series.
        ends: as `block_ends` gives them.
    """
    digests = bytearray()
    bounds = np.concatenate(([0], np.cumsum(_capture_bytes(part))))[[0, *ends]].tolist()
    first = 0
    while first < len(ends):
        last = max(bisect_right(bounds, bounds[first] + _SLICE_BYTES) - 1, first + 1)  # small blocks are read in groups
        start, stop = ends[first - 1] if first else 0, ends[last - 1]
        if last == first + 1:
            hasher = Hasher()
            for piece in part.pieces(start, stop, _SLICE_BYTES):
                hasher.update(piece.view(np.uint8).data)
            digests += hasher.digest()
        else:
            payload = part.elements(start, stop).view(np.uint8).data
            for block in range(first, last):
                digests += Hasher(payload[bounds[block] - bounds[first] : bounds[block + 1] - bounds[first]]).digest()
        first = last
    return np.frombuffer(bytes(digests), np.uint8).reshape(len(ends), 32)


def clock_table(part: SeriesPart) -> bytes:
    """The clock table that a series' digest covers."""
    table = np.zeros(len(part.clocks), _CLOCK)
    for name in _CLOCK.names or ():
        table[name] = part.clocks[name]
    return table.tobytes()


def shape_table(part: SeriesPart) -> bytes:
    """The shape table that a series' digest covers."""
    if len(part.shapes) and (part.shapes == part.shapes[0]).all():
        return shape_row(shape_of(part.shapes[0])) * len(part.shapes)
    distinct, which = np.unique(part.shapes, axis=0, return_inverse=True)
    rows = [shape_row(shape_of(row)) for row in distinct]
    return b"".join(rows[index] for index in which.reshape(-1).tolist())


def digest_of(part: SeriesPart, digests: NDArray[np.uint8], dtype: str | None = None) -> str:
    """The digest of a series with some block digests, read as its own or another dtype."""
    return series_hex(part.key, dtype or part.dtype, len(part.clocks), clock_table(part), shape_table(part), digests.tobytes())


def stored_digest_changes(file: str, series: SeriesDigests) -> Iterator[Finding]:
    """The change of a series with intact captures: only stored digests can have changed."""
    if not series.agree:
        key = series.part.key
        yield Finding("digest-edited", file, f"`{key}`: a stored digest changed, the captures did not", key)


def changes(file: str, series: SeriesDigests, lost: int) -> list[Finding]:
    """The change of a series.

    Args:
        file: name of the file, for the findings.
        series: the digests of the series.
        lost: how many captures the whole file lacks, or has too many if negative; 0 if that is not known.
    """
    if series.computed == series.stored:
        return list(stored_digest_changes(file, series))
    stored = series.stored_blocks
    if series.blocks.shape == stored.shape and digest_of(series.part, stored) == series.stored:
        return list(_changed_blocks(file, series))
    return [_other_change(file, series, lost)]


def _changed_blocks(file: str, series: SeriesDigests) -> Iterator[Finding]:
    """One finding for each block whose bytes changed."""
    part = series.part
    for block in np.flatnonzero((series.blocks != series.stored_blocks).any(axis=1)).tolist():
        start, end = series.ends[block - 1] if block else 0, series.ends[block]
        steps = int(part.clocks["step"][start:end].min()), int(part.clocks["step"][start:end].max())
        where = f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]} to {steps[1]}"
        block_note = "" if end - start == 1 else f" (captures {start} to {end - 1}, one block of {BLOCK_BYTES // 1024} KiB)"
        yield Finding("bit-flip", file, f"`{part.key}`: bytes changed in {where}{block_note}", part.key, steps)


def _other_change(file: str, series: SeriesDigests, lost: int) -> Finding:
    """The change, if the bytes of single blocks do not explain it."""
    part, stored = series.part, series.stored_blocks
    key = part.key
    captured = _other_dtype(series) if series.blocks_agree else ""
    if captured:
        return Finding("dtype-changed", file, f"`{key}` is stored as `{part.dtype}`, and was captured as `{captured}`", key)
    if lost > 0 or (lost == 0 and len(series.ends) < len(stored)):
        steps = _missing_steps(part)
        named = f": step {', '.join(map(str, steps))} is missing" if steps else ""
        return Finding("step-missing", file, f"`{key}`: captures were removed{named}", key, (steps[0], steps[-1]) if steps else None)
    if lost < 0 or len(series.ends) > len(stored):
        return Finding("step-added", file, f"`{key}`: captures were added", key)
    if series.blocks_agree:
        return Finding("clock-edited", file, f"`{key}`: its name, or steps, calls or shapes of its captures changed", key)
    first = int(np.flatnonzero((series.blocks != stored).any(axis=1))[0])
    start = series.ends[first - 1] if first else 0
    of_block = int(part.clocks["step"][start]), int(part.clocks["step"][series.ends[first] - 1])
    return Finding("bit-flip", file, f"`{key}`: bytes changed from step {of_block[0]} on, and its digests or clocks too", key, of_block)


def _other_dtype(series: SeriesDigests) -> str:
    """The dtype of the same size for which the stored digest is right, or an empty text."""
    part, size = series.part, DTYPES[series.part.dtype].itemsize
    alike = (name for name, kind in DTYPES.items() if kind.itemsize == size and name != part.dtype)
    return next((name for name in alike if digest_of(part, series.blocks, name) == series.stored), "")


def _missing_steps(part: SeriesPart) -> list[int]:
    """The first steps that break the regular spacing of a series; a changed number may make the gap very large."""
    steps = np.unique(part.clocks["step"]).astype(np.int64)
    if len(steps) < 2:
        return []
    known, spacing = set(steps.tolist()), int(np.gcd.reduce(np.diff(steps)))
    missing = (step for step in range(int(steps[0]), int(steps[-1]), spacing) if step not in known)
    return list(islice(missing, MOST_STEPS))
