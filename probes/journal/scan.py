"""Read the records of a journal, including one that is being written, is torn, or is untrusted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probes.errors import FileRefused, StorageError
from probes.host import boot_id
from probes.journal.record import (
    CAPTURE,
    ENTRY,
    FIXED,
    LARGEST,
    EntryFlag,
    FrameFlag,
    RecordKind,
    annex_fault,
    descriptor_fault,
    end_fault,
    head_fault,
    payload_start,
)
from probes.journal.record_reader import JournalBytes, Proof, Record, RecordReader
from probes.printable import counted
from probes.signature import DTYPES

COMMIT = np.dtype([("phase", "<u4"), ("step", "<u4"), ("global_step", "<u8"), ("first", "<u8"), ("count", "<u8")])

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Scan:
    """The committed content of a journal.

    Attributes:
        path: the file.
        head: the JSON of HEAD.
        end: the JSON of END, or None.
        descriptors: the JSON of the DESCRIPTORs, by id.
        phases: names of the phases, by id.
        captures: rows of `CAPTURE`, in order of writing; `offset` counts from the start of the file.
        commits: rows of `COMMIT`; `first` and `count` are rows of `captures`.
        annexes: (index of the commit, annex) of the commits that have one.
        good_bytes: where the last good record ends.
        state: `complete` (END was seen), `open` (ends with a good record) or `torn`.
        trusted: whether every commit that was found is here.
        untrusted_commits: commits left out because nothing proves their bytes: they were neither synced nor, being large, digested, and
            the journal comes from another machine, or from this one before it was restarted.
        damaged_commits: commits left out because their bytes do not agree with their digests.
    """

    path: Path
    head: dict[str, Any]
    end: dict[str, Any] | None
    descriptors: tuple[dict[str, Any], ...]
    phases: tuple[str, ...]
    captures: Array
    commits: Array
    annexes: tuple[tuple[int, dict[str, Any]], ...]
    good_bytes: int
    state: str
    trusted: bool
    untrusted_commits: int
    damaged_commits: int = 0

    @property
    def left_out(self) -> str:
        """A sentence on missing commits; empty if none is missing."""
        found = (
            (self.untrusted_commits, "step", " without proof that all bytes came to the device"),
            (self.damaged_commits, "damaged step", ""),
        )
        return " and ".join(f"{counted(count, what)}{rest}" for count, what, rest in found if count)


def scan(path: Path, *, boot: str | None = None, unproven: bool = False) -> Scan:
    """Read the headers and tables of a journal; payloads are read only where there is a digest to hold against them.

    Args:
        path: the journal; it is not changed, and may be written to meanwhile.
        boot: the boot to compare the journal's with; that of the running machine by default.
        unproven: take also what nothing proves, because it is known that the machine which wrote it did not crash.

    Raises:
        StorageError: the file cannot be read.
        FileRefused: it is not a journal (`not-a-journal`), of another format (`unknown-format`), ends inside its HEAD, so
            that nothing can have been committed (`journal-empty`), or chains but says what no writer says
            (`journal-inconsistent`).
    """
    # Opening a named pipe must not wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
        try:
            source = JournalBytes(path, descriptor)
            chain = RecordReader(source)
            content = _ScannedRecords(source, chain.head)
            for record in chain:
                content.take(record)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(f'cannot read the journal "{path}": {error.strerror}') from error
    return _scan(chain, content, unproven or chain.head.get("boot_id") == (boot_id() if boot is None else boot))


def _scan(chain: RecordReader, content: _ScannedRecords, safe: bool) -> Scan:
    commits = np.array(content.commits, COMMIT)
    captures, proofs = content.captures()
    proof = _proof_of_commits(commits, proofs)
    synced = np.arange(len(commits)) < content.synced
    kept = (proof == Proof.WHOLE) | ((proof == Proof.UNCHECKED) & (safe | synced))
    damaged = int((proof == Proof.DAMAGED).sum())
    left_out = len(commits) - int(kept.sum())
    end = None if left_out else content.end
    if left_out:
        captures = captures[np.repeat(kept, commits["count"].astype(np.intp))]
        commits = commits[kept]
        commits["first"] = np.cumsum(commits["count"]) - commits["count"]
    places = np.cumsum(kept) - 1
    return Scan(
        path=content.source.path,
        head=chain.head,
        end=end,
        descriptors=tuple(content.descriptors),
        phases=tuple(content.phases),
        captures=captures,
        commits=commits,
        annexes=tuple((int(places[index]), annex) for index, annex in content.annexes if kept[index]),
        good_bytes=chain.end,
        state="complete" if end is not None else "torn" if chain.torn or left_out else "open",
        trusted=not left_out,
        untrusted_commits=left_out - damaged,
        damaged_commits=damaged,
    )


def _proof_of_commits(commits: Array, proofs: Array) -> Array:
    """The proof for the payloads of each commit: the weakest of those of its captures."""
    found = np.full(len(commits), Proof.WHOLE, np.uint8)
    filled = np.flatnonzero(commits["count"])
    if len(filled):
        found[filled] = np.minimum.reduceat(proofs, commits["first"][filled].astype(np.intp))
    return found


class _FrameTable(NamedTuple):
    """The table of a frame, the offsets of the frame and its payloads, its end, and the proof for its payloads."""

    table: bytes
    start: int
    payloads: int
    stop: int
    proof: Proof


class _ScannedRecords:
    """The state of the records read so far."""

    def __init__(self, source: JournalBytes, head: dict[str, Any]) -> None:
        self.source = source
        self._refuse(head_fault(head))
        self.descriptors: list[dict[str, Any]] = []
        self.phases: list[str] = []
        self.commits: list[tuple[int, int, int, int, int]] = []
        self.annexes: list[tuple[int, dict[str, Any]]] = []
        self.synced = 0
        self.end: dict[str, Any] | None = None
        self._extents: list[tuple[int, Proof]] = []
        self._sizes: list[int] = []
        self._frames: list[_FrameTable] = []
        self._pending: list[_FrameTable] = []
        self._rows = 0

    def take(self, record: Record) -> None:
        """Process one more record."""
        match record.header.kind:
            case RecordKind.FRAME:
                self._take_frame(record)
            case RecordKind.DESCRIPTOR:
                self._take_descriptor(self.source.json(record.checked))
            case RecordKind.SYNC:
                self.synced = len(self.commits)
            case RecordKind.END:
                self.end = self.source.json(record.checked)
                self._refuse(end_fault(self.end))
            case RecordKind.EXTENT:
                self._extents.append((record.body, record.proof))
            case kind:
                raise self._inconsistent(f"a record of kind {kind}, which is not allowed there")

    def captures(self) -> tuple[Array, Array]:
        """The committed captures with offsets from the start of the file, and the proof for the bytes of each."""
        frames = self._frames
        rows = np.frombuffer(bytearray(b"".join(frame.table for frame in frames)), CAPTURE)
        counts = [len(frame.table) // ENTRY.size for frame in frames]
        start, payloads, stop, proof = (np.repeat(np.array([frame[i] for frame in frames], np.uint64), counts) for i in (1, 2, 3, 4))
        inline = (rows["flags"] & EntryFlag.INLINE) != 0
        self._check_bounds(rows, np.where(inline, stop - payloads, start))
        rows["offset"] += np.where(inline, payloads, np.uint64(0))
        rows["flags"] &= ~np.uint32(EntryFlag.INLINE)
        return rows, np.where(inline, proof, self._proof_of_extents(rows["offset"]))

    def _proof_of_extents(self, offsets: Array) -> Array:
        """The proof for the extent that begins at or before each offset; none if there is no such extent."""
        starts = np.array([0, *(start for start, _ in self._extents)], np.uint64)
        proofs = np.array([Proof.UNCHECKED, *(proof for _, proof in self._extents)], np.uint64)
        return proofs[np.searchsorted(starts, offsets, side="right") - 1]

    def _check_bounds(self, rows: Array, limit: Array) -> None:
        if not len(rows):
            return
        if rows["descriptor"].max() >= len(self._sizes):
            raise self._inconsistent("a capture of a series without a descriptor")
        sizes = np.array(self._sizes, np.uint64)[rows["descriptor"]]
        offset = rows["offset"]
        if ((offset > limit) | (sizes > limit - offset)).any():
            raise self._inconsistent("a capture whose payload is outside the records before it")

    def _take_descriptor(self, about: dict[str, Any]) -> None:
        if about.get("id") != len(self.descriptors):
            raise self._inconsistent("descriptors whose numbers are not consecutive")
        self._refuse(descriptor_fault(about))
        self.descriptors.append(about)
        self._sizes.append(min(DTYPES[about["dtype"]].itemsize * prod(about["shape"]), LARGEST))

    def _take_frame(self, record: Record) -> None:
        checked, flags = record.checked, record.header.flags
        if len(checked) < FIXED.size or flags not in (0, FrameFlag.COMMIT, FrameFlag.ABORT):
            raise self._inconsistent("a frame that is too short")
        step, phase, entries, annex_bytes, global_step = FIXED.unpack_from(checked)
        table_end = FIXED.size + entries * ENTRY.size
        if table_end + annex_bytes != len(checked):
            raise self._inconsistent("a frame whose table has another length than its count says")
        payloads = min(record.body + payload_start(len(checked)), record.stop)
        self._pending.append(_FrameTable(checked[FIXED.size : table_end], record.body, payloads, record.stop, record.proof))
        if flags == FrameFlag.ABORT:
            self._pending.clear()
        elif flags == FrameFlag.COMMIT:
            self._take_annex(self.source.json(checked[table_end:]) if annex_bytes else {})
            self._commit(phase, step, global_step)

    def _take_annex(self, annex: dict[str, Any]) -> None:
        named = annex.pop("phases", {})
        if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
            raise self._inconsistent("phases without names")
        for number, name in named.items():
            if number != str(len(self.phases)):
                raise self._inconsistent("phases whose numbers are not consecutive")
            self.phases.append(name)
        self._refuse(annex_fault(annex))
        if annex:
            self.annexes.append((len(self.commits), annex))

    def _commit(self, phase: int, step: int, global_step: int) -> None:
        if phase >= len(self.phases):
            raise self._inconsistent("a step of a phase without a name")
        count = sum(len(frame.table) for frame in self._pending) // ENTRY.size
        self.commits.append((phase, step, global_step, self._rows, count))
        self._rows += count
        self._frames += self._pending
        self._pending.clear()

    def _refuse(self, fault: str) -> None:
        if fault:
            raise self._inconsistent(fault)

    def _inconsistent(self, what: str) -> FileRefused:
        return self.source.refused("journal-inconsistent", f"holds {what}")
