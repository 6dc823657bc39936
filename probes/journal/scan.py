"""Read the records of a journal, also of one that is being written, is torn, or comes from a stranger."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probes.errors import FileRefused, StorageError
from probes.host import boot_id
from probes.journal.record import ENTRY, FIXED, EntryFlag, FrameFlag, RecordKind, payload_start
from probes.journal.record_reader import JournalBytes, Record, RecordReader
from probes.journal.validate import LARGEST, annex_fault, descriptor_fault, end_fault, head_fault
from probes.signature import DTYPES

CAPTURE = np.dtype(
    {
        "names": ["descriptor", "flags", "step", "microstep", "call", "backward", "offset"],
        "formats": ["<u4", "<u4", "<u4", "<i4", "<u4", "<u4", "<u8"],
    }
)
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
        untrusted_commits: commits left out: written in process mode, not synced, and the machine was restarted since.
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


def scan(path: Path, *, boot: str | None = None) -> Scan:
    """Read the headers and tables of a journal; payloads are read only where there is a digest to hold against them.

    Args:
        path: the journal; it is not changed, and may be written to meanwhile.
        boot: the boot to compare the journal's with; that of the running machine by default.

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
    return _scan(chain, content, boot_id() if boot is None else boot)


def _scan(chain: RecordReader, content: _ScannedRecords, boot: str) -> Scan:
    safe = chain.head.get("durability") == "power" or chain.head.get("boot_id") == boot
    commits = np.array(content.commits, COMMIT)
    kept = len(commits) if safe else content.synced
    left_out = len(commits) - kept
    end = None if left_out else content.end
    captures = content.captures()
    return Scan(
        path=content.source.path,
        head=chain.head,
        end=end,
        descriptors=tuple(content.descriptors),
        phases=tuple(content.phases),
        captures=captures[: int(commits["first"][kept])] if left_out else captures,
        commits=commits[:kept],
        annexes=tuple(note for note in content.annexes if note[0] < kept),
        good_bytes=chain.end,
        state="complete" if end is not None else "torn" if chain.torn or left_out else "open",
        trusted=not left_out,
        untrusted_commits=left_out,
    )


class _FrameTable(NamedTuple):
    """The table of a frame, where the frame and its own payloads start, and where it stops."""

    table: bytes
    start: int
    payloads: int
    stop: int


class _ScannedRecords:
    """What the records read so far have said."""

    def __init__(self, source: JournalBytes, head: dict[str, Any]) -> None:
        self.source = source
        self._refuse(head_fault(head))
        self.descriptors: list[dict[str, Any]] = []
        self.phases: list[str] = []
        self.commits: list[tuple[int, int, int, int, int]] = []
        self.annexes: list[tuple[int, dict[str, Any]]] = []
        self.synced = 0
        self.end: dict[str, Any] | None = None
        self._sizes: list[int] = []
        self._frames: list[_FrameTable] = []
        self._pending: list[_FrameTable] = []
        self._rows = 0

    def take(self, record: Record) -> None:
        """Understand one more record."""
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
                pass
            case kind:
                raise self._inconsistent(f"a record of kind {kind}, which is not allowed there")

    def captures(self) -> Array:
        """The committed captures, their offsets counted from the start of the file."""
        frames = self._frames
        rows = np.frombuffer(bytearray(b"".join(frame.table for frame in frames)), CAPTURE)
        counts = [len(frame.table) // ENTRY.size for frame in frames]
        start, payloads, stop = (np.repeat(np.array([frame[i] for frame in frames], np.uint64), counts) for i in (1, 2, 3))
        inline = (rows["flags"] & EntryFlag.INLINE) != 0
        self._check_bounds(rows, np.where(inline, stop - payloads, start))
        rows["offset"] += np.where(inline, payloads, np.uint64(0))
        rows["flags"] &= ~np.uint32(EntryFlag.INLINE)
        return rows

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
        self._pending.append(_FrameTable(checked[FIXED.size : table_end], record.body, payloads, record.stop))
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
