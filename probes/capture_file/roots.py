"""The roots of a sealed file, computed from its content."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from probes.clock import SeriesKey
from probes.digest import Hasher, blake3_hex, canonical, epoch_root

FILE_ROOT = "file_root"
HEX = 64
PIECE_BYTES = 4 << 20

Gap = tuple[SeriesKey, str, int]


def merge_gaps(rows: Iterable[Iterable[Any]]) -> list[Gap]:
    """The gaps of an epoch, sorted, one for each series and reason.

    Args:
        rows: probe, target, leaf, phase, reason and count, as the steps reported them.
    """
    counts: Counter[tuple[SeriesKey, str]] = Counter()
    for probe, target, leaf, phase, reason, count in rows:
        counts[SeriesKey(probe, target, leaf, phase), reason] += count
    return [(key, reason, count) for (key, reason), count in sorted(counts.items())]


def gaps_text(gaps: Iterable[Gap]) -> bytes:
    """The gaps in the form of a file: canonical JSON, one row each."""
    return canonical([[*key, reason, count] for key, reason, count in gaps])


def root_of_epoch(manifest: Mapping[str, Any], closing: Mapping[str, Any], captures_root: str, captures: int, complete: bool) -> str:
    """The epoch root of a file.

    Args:
        manifest: the run's manifest; its `identity` gives spec, structure, weights, code and environment.
        closing: what the epoch's end said; its `weights` go before those of the manifest, its `steps` are counted.
        captures_root: digest of everything captured.
        captures: how many captures the file holds.
        complete: whether the epoch is complete.

    Returns:
        64 hex digits.
    """
    facts = dict(manifest.get("identity") or {})
    if closing.get("weights"):
        facts["weights"] = closing["weights"]
    counts = {"captures": captures, "steps": closing.get("steps")}
    return epoch_root({**facts, "captures_root": captures_root, "counts": counts, "complete": complete})


def root_of_segments(roots: Iterable[str]) -> str:
    """The captures root of an epoch in segments: the digest of the list of theirs."""
    return blake3_hex(canonical({"segments": list(roots)}))


def file_root(descriptor: int, without: Iterable[range]) -> str:
    """BLAKE3 of the bytes of an open file, without some places; read in pieces, so that it may be larger than memory.

    Payloads are covered by the captures root, which is among the bytes that are hashed here; so is the rest of the file: metadata of HDF5,
    attributes, texts, clocks, sample ids, gaps between objects.

    Args:
        descriptor: the file.
        without: the payloads of every series that is stored in one piece, and the place of this digest itself; in any order.

    Returns:
        64 hex digits.
    """
    hasher = Hasher()
    for piece in rest(os.fstat(descriptor).st_size, without):
        for at in range(piece.start, piece.stop, PIECE_BYTES):
            hasher.update(os.pread(descriptor, min(PIECE_BYTES, piece.stop - at), at))
    return hasher.hexdigest()


def rest(size: int, without: Iterable[range]) -> Iterator[range]:
    """The places of a file of so many bytes that are not among the given ones, ascending."""
    at = 0
    for place in sorted(without, key=lambda place: (place.start, place.stop)):
        if place.start > at:
            yield range(at, place.start)
        at = max(at, place.stop)
    yield range(at, size)
