"""Hashed data: canonical JSON, blocks of captures, series digests and the roots of a file and of its epoch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from math import isfinite
from pathlib import Path
from struct import Struct
from typing import Any, Literal, TypeAlias

from blake3 import blake3

from probes.clock import SeriesKey

Buffer: TypeAlias = bytes | bytearray | memoryview
Proof: TypeAlias = Literal["proof.v1", "proof.v2"]
Hasher = blake3

ALGORITHM = "blake3"
PROOF: Proof = "proof.v2"
NOT_IN_IDENTITY = ("sinks", "rules", "limits", "durability", "on_error", "tolerance")
BLOCK_BYTES = 64 * 1024
HEX = 64  # digits of a digest as text
FILE_ROOT = "file_root"  # the dataset that holds the digest of the rest of its file
EPOCH_ROOT_FIELDS = ("captures_root", "spec", "structure", "weights", "code", "environment", "counts", "complete")

_READ_BYTES = 1 << 20
_PIECE_BYTES = 4 << 20
_TEXT = json.JSONEncoder(ensure_ascii=False).encode


def canonical(value: Any) -> bytes:
    """The canonical JSON text of a value: keys sorted by code point, no spaces, UTF-8.

    Args:
        value: dicts with text keys, lists, tuples, text, finite numbers, booleans, None.

    Raises:
        ValueError: a number that is not finite, or text that has no UTF-8 form.
        TypeError: a value that JSON does not know.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def canonical_v2(value: Any) -> bytes:
    """The canonical JSON text of a value by RFC 8785, which other languages support: keys sorted by UTF-16 units, numbers as in ECMAScript.

    Args:
        value: as for `canonical`. An integer beyond 2^53 is written as the nearest double.

    Raises:
        ValueError: a number that is not finite, or text that has no UTF-8 form.
        TypeError: a value that JSON does not know.
    """
    return _rfc8785(value).encode("utf-8")


def canonical_of(proof: str) -> Callable[[Any], bytes]:
    """The canonical JSON of a version of the proof: `proof.v1` or `proof.v2`."""
    return canonical if proof == "proof.v1" else canonical_v2


def _rfc8785(value: Any) -> str:
    if isinstance(value, Mapping):
        rows = sorted(value.items(), key=lambda row: row[0].encode("utf-16-be"))
        return f"{{{','.join(f'{_TEXT(key)}:{_rfc8785(one)}' for key, one in rows)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_rfc8785, value))}]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and abs(value) <= 1 << 53:
        return str(value)
    return _number(float(value)) if isinstance(value, int | float) else _TEXT(value)


def _number(value: float) -> str:
    """A number as ECMAScript writes it: the shortest digits that give the same double, as in Python, in another notation."""
    if not isfinite(value):
        raise ValueError(f"`{value}` is not a number of JSON")
    if not value:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    if len(text) <= point <= 21:
        text = text.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        text = f"{text[0]}{'.' if text[1:] else ''}{text[1:]}e{point - 1:+d}"
    return f"{'-' if sign else ''}{text}"


def spec_identity(resolved: Mapping[str, Any], proof: str = PROOF) -> str:
    """BLAKE3 of all keys of a resolved spec that affect captured values.

    Args:
        resolved: the resolved spec as plain data.
        proof: the version of the proof, which says what is canonical JSON.

    Returns:
        64 hex digits.
    """
    kept = {key: value for key, value in resolved.items() if key not in NOT_IN_IDENTITY}
    probes = {name: {key: value for key, value in probe.items() if key != "sinks"} for name, probe in kept["probes"].items()}
    return blake3_hex(canonical_of(proof)({**kept, "probes": probes}))


def blake3_hex(data: Buffer) -> str:
    """BLAKE3 of some bytes, as 64 hex digits."""
    return blake3(data).hexdigest()


def file_hex(path: Path) -> str:
    """BLAKE3 of a file's bytes, read in pieces."""
    hasher = blake3()
    piece = memoryview(bytearray(_READ_BYTES))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(piece):
            hasher.update(piece[:size])
    return hasher.hexdigest()


def blocks(sizes: Iterable[int]) -> list[int]:
    """The ends of the digest blocks of a series.

    A block is a run of consecutive captures that ends with the one that brings it to 64 KiB; a capture of 64 KiB or
    more is a block of its own.

    Args:
        sizes: bytes of each capture, in clock order.

    Returns:
        For each block the index after its last capture; empty for no captures.
    """
    ends: list[int] = []
    filled = count = start = 0
    for count, size in enumerate(sizes, 1):
        if size >= BLOCK_BYTES and count - 1 > start:
            ends.append(count - 1)
            start, filled = count - 1, 0
        filled += size
        if filled >= BLOCK_BYTES:
            ends.append(count)
            start, filled = count, 0
    if count > start:
        ends.append(count)
    return ends


class BlockDigests:
    """The block digests of one series, fed capture by capture in clock order, each payload whole or in pieces."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._hasher: Hasher | None = None
        self._filled = 0

    def begin(self, size: int) -> None:
        """Announce the next capture and its bytes; the data of `update` until the next call belongs to it."""
        if self._filled >= BLOCK_BYTES or size >= BLOCK_BYTES:
            self._close()
        if self._hasher is None:
            self._hasher = blake3()
        self._filled += size

    def update(self, piece: Buffer) -> None:
        """Hash the next bytes of the announced capture."""
        if self._hasher is None:
            raise AssertionError("BUG: a payload without a capture")
        self._hasher.update(piece)

    def add(self, payload: Buffer) -> None:
        """Announce and hash one capture with its whole payload."""
        self.begin(len(payload) if isinstance(payload, bytes | bytearray) else payload.nbytes)
        self.update(payload)

    def finish(self) -> bytes:
        """All block digests, 32 bytes each, in order."""
        self._close()
        return b"".join(self._done)

    def _close(self) -> None:
        if self._hasher is not None:
            self._done.append(self._hasher.digest())
        self._hasher, self._filled = None, 0


def shape_row(shape: tuple[int, ...]) -> bytes:
    """One row of a series' shape table: the number of axes, then their sizes."""
    return Struct(f"<I{len(shape)}Q").pack(len(shape), *shape)


def series_hex(key: SeriesKey, dtype: str, captures: int, clocks: Buffer, shapes: Buffer, block_digests: Buffer) -> str:
    """The digest of one series.

    Args:
        key: probe, target, leaf and phase.
        dtype: torch's name without prefix.
        captures: how many there are.
        clocks: the clock table: epoch, step, microstep (signed), call, backward and rank of each capture, 32 bits each, in clock order.
        shapes: the rows of `shape_row`, in the same order.
        block_digests: 32 bytes a block, as `BlockDigests.finish` returns them.

    Returns:
        64 hex digits.
    """
    head = {**key._asdict(), "dtype": dtype, "captures": captures, "blocks": len(block_digests) // 32}
    hasher = blake3(canonical(head) + b"\n")
    for table in (clocks, shapes, block_digests):
        hasher.update(table)
    return hasher.hexdigest()


def captures_root(series: Iterable[tuple[SeriesKey, str, str]], gaps: Iterable[tuple[SeriesKey, str, int]]) -> str:
    """The digest of everything captured, and of nothing else.

    Args:
        series: key, dtype and series digest of each series, in any order.
        gaps: key, reason and count of what was due and is not there, in any order.

    Returns:
        64 hex digits.
    """
    rows = sorted([*key, dtype, digest] for key, dtype, digest in series)
    lacking = sorted([*key, reason, count] for key, reason, count in gaps)
    return blake3_hex(canonical({"series": rows, "gaps": lacking}))


def root_of_segments(roots: Iterable[str]) -> str:
    """The captures root of an epoch in segments: the digest of the list of theirs."""
    return blake3_hex(canonical({"segments": list(roots)}))


def epoch_root(facts: Mapping[str, Any]) -> str:
    """The digest of the captures together with their origin.

    Args:
        facts: the values of `EPOCH_ROOT_FIELDS`; missing ones count as null, others are left out.

    Returns:
        64 hex digits.
    """
    return blake3_hex(canonical({name: facts.get(name) for name in EPOCH_ROOT_FIELDS}))


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
    hasher = blake3()
    for piece in _rest(os.fstat(descriptor).st_size, without):
        for at in range(piece.start, piece.stop, _PIECE_BYTES):
            hasher.update(os.pread(descriptor, min(_PIECE_BYTES, piece.stop - at), at))
    return hasher.hexdigest()


def _rest(size: int, without: Iterable[range]) -> Iterator[range]:
    """The places of a file of so many bytes that are not among the given ones, ascending."""
    at = 0
    for place in sorted(without, key=lambda place: (place.start, place.stop)):
        if place.start > at:
            yield range(at, place.start)
        at = max(at, place.stop)
    yield range(at, size)
