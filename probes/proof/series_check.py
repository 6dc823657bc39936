"""Verifying one series of a sealed file: every byte, clock and shape against its digests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.series_part import Part, shape_of, sizes
from probes.clock import SeriesKey
from probes.digest import BLOCK_BYTES, Hasher, blocks, series_hex, shape_row
from probes.proof.finding import Finding
from probes.signature import DTYPES

_CLOCK = np.dtype([("epoch", "<u4"), ("step", "<u4"), ("microstep", "<i4"), ("call", "<u4"), ("backward", "<u4"), ("rank", "<u4")])
_SLICE_BYTES = 4 << 20
MOST_STEPS = 16


class StoredDigests(NamedTuple):
    """What a file says of a series, beside its captures.

    Attributes:
        digest: the series digest.
        blocks: (blocks, 32) the digests of its blocks.
        lost: how many captures the file lacks altogether, or has too many where negative; 0 where that is not known.
    """

    digest: str
    blocks: NDArray[np.uint8]
    lost: int


def block_ends(part: Part) -> list[int]:
    """For each digest block of a series the index behind its last capture."""
    kind = DTYPES[part.dtype]
    bytes_of = sizes(part.shapes, part.dtype) * (kind.itemsize // kind.lanes)
    if len(bytes_of) and (bytes_of == bytes_of[0]).all():
        count, size = len(bytes_of), int(bytes_of[0])
        each = -(-BLOCK_BYTES // size) if size else count
        return [*range(each, count, each), count]
    return blocks(bytes_of.tolist())


def block_digests(part: Part, ends: list[int], has_read: Callable[[int], None]) -> NDArray[np.uint8]:
    """(blocks, 32) the digests of the blocks, computed from the bytes.

    Args:
        part: the series.
        ends: as `block_ends` gives them.
        has_read: told how many bytes were read, so that memory can be let go.
    """
    digests = bytearray()
    start = 0
    for end in ends:
        payload = part.elements(start, end).view(np.uint8).data
        digests += _digest(payload, has_read)
        start = end
    return np.frombuffer(bytes(digests), np.uint8).reshape(len(ends), 32)


def _digest(payload: memoryview, has_read: Callable[[int], None]) -> bytes:
    if payload.nbytes <= _SLICE_BYTES:
        has_read(payload.nbytes)
        return Hasher(payload).digest()
    hasher = Hasher()
    for at in range(0, payload.nbytes, _SLICE_BYTES):
        hasher.update(payload[at : at + _SLICE_BYTES])
        has_read(min(_SLICE_BYTES, payload.nbytes - at))
    return hasher.digest()


def clock_table(part: Part) -> bytes:
    """The clock table that a series' digest covers."""
    table = np.zeros(len(part.clocks), _CLOCK)
    for name in _CLOCK.names or ():
        table[name] = part.clocks[name]
    return table.tobytes()


def shape_table(part: Part) -> bytes:
    """The shape table that a series' digest covers."""
    if len(part.shapes) and (part.shapes == part.shapes[0]).all():
        return shape_row(shape_of(part.shapes[0])) * len(part.shapes)
    distinct, which = np.unique(part.shapes, axis=0, return_inverse=True)
    rows = [shape_row(shape_of(row)) for row in distinct]
    return b"".join(rows[index] for index in which.reshape(-1).tolist())


def digest_of(part: Part, digests: NDArray[np.uint8], dtype: str | None = None) -> str:
    """The digest of a series with some block digests, read as its own or another dtype."""
    return series_hex(part.key, dtype or part.dtype, len(part.clocks), clock_table(part), shape_table(part), digests.tobytes())


def check_series(file: str, part: Part, stated: StoredDigests, has_read: Callable[[int], None]) -> tuple[str, list[Finding]]:
    """Verify a series.

    Args:
        file: name of the file, for the findings.
        part: the series.
        stated: what the file says of it.
        has_read: told how many bytes were read.

    Returns:
        The digest computed from its bytes, and what is wrong; empty where it is as it was sealed.
    """
    ends = block_ends(part)
    found = block_digests(part, ends, has_read)
    digest = digest_of(part, found)
    whole = found.shape == stated.blocks.shape and bool((found == stated.blocks).all())
    if digest == stated.digest:
        return digest, [] if whole else [_finding("digest-edited", file, part.key, "block digests changed, the bytes did not")]
    if found.shape == stated.blocks.shape and digest_of(part, stated.blocks) == stated.digest:
        return digest, list(_flips(file, part, ends, found, stated.blocks))
    return digest, [_other(file, part, ends, found, stated, whole)]


def _flips(file: str, part: Part, ends: list[int], found: NDArray[np.uint8], stated: NDArray[np.uint8]) -> Iterator[Finding]:
    """One finding for each block whose bytes changed."""
    for block in np.flatnonzero((found != stated).any(axis=1)).tolist():
        start, end = ends[block - 1] if block else 0, ends[block]
        steps = int(part.clocks["step"][start:end].min()), int(part.clocks["step"][start:end].max())
        where = f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]} to {steps[1]}"
        range_note = "" if end - start == 1 else f" (captures {start} to {end - 1}, one block of {BLOCK_BYTES // 1024} KiB)"
        yield Finding("bit-flip", file, f"{part.key}: bytes changed in {where}{range_note}", part.key, steps)


def _other(file: str, part: Part, ends: list[int], found: NDArray[np.uint8], stated: StoredDigests, whole: bool) -> Finding:
    """What changed where neither bytes nor digests alone did."""
    if whole:
        meant = _other_dtype(part, found, stated.digest)
        if meant:
            return _finding("dtype-changed", file, part.key, f"is read as {part.dtype}, and was captured as {meant}")
    if stated.lost > 0 or (stated.lost == 0 and len(ends) < len(stated.blocks)):
        steps = _missing_steps(part)
        return Finding("step-missing", file, f"{part.key}: captures were taken out{_named(steps)}", part.key, _span(steps))
    if stated.lost < 0 or len(ends) > len(stated.blocks):
        return _finding("step-added", file, part.key, "captures were added")
    if whole:
        return _finding("clock-edited", file, part.key, "steps, calls or shapes of its captures were changed")
    first = int(np.flatnonzero((found != stated.blocks).any(axis=1))[0])
    start = ends[first - 1] if first else 0
    steps_of_block = int(part.clocks["step"][start]), int(part.clocks["step"][ends[first] - 1])
    message = f"{part.key}: bytes from step {steps_of_block[0]} on, and its digests or clocks, were changed"
    return Finding("bit-flip", file, message, part.key, steps_of_block)


def _other_dtype(part: Part, found: NDArray[np.uint8], digest: str) -> str:
    """The dtype of the same size under which the digest holds, or an empty text."""
    size = DTYPES[part.dtype].itemsize
    alike = (name for name, kind in DTYPES.items() if kind.itemsize == size and name != part.dtype)
    return next((name for name in alike if digest_of(part, found, name) == digest), "")


def _missing_steps(part: Part) -> list[int]:
    """The first steps that break the regular spacing of a series; a changed number may make the gap endless."""
    steps = np.unique(part.clocks["step"]).astype(np.int64)
    if len(steps) < 2:
        return []
    known, spacing = set(steps.tolist()), int(np.gcd.reduce(np.diff(steps)))
    missing = (step for step in range(int(steps[0]), int(steps[-1]), spacing) if step not in known)
    return list(islice(missing, MOST_STEPS))


def _named(steps: list[int]) -> str:
    return f": it lacks step {', '.join(map(str, steps))}" if steps else ""


def _span(steps: list[int]) -> tuple[int, int] | None:
    return (steps[0], steps[-1]) if steps else None


def _finding(code: str, file: str, key: SeriesKey, message: str, **more: Any) -> Finding:
    return Finding(code, file, f"{key} {message}" if code in ("dtype-changed",) else f"{key}: {message}", key, **more)
