"""The committed steps of a journal that another process is writing, without locks and without writing."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probes.errors import FileRefused, StorageError
from probes.journal.record import (
    CAPTURE,
    ENTRY,
    FIXED,
    HEADER_BYTES,
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
from probes.journal.scan import Array

LARGEST_DIGESTED = 64 << 10  # bytes; larger payloads are not read, so that following a run needs little disk bandwidth


class CommittedStep(NamedTuple):
    """A step that was committed.

    Attributes:
        phase: name of its phase.
        step: step within (epoch, phase).
        global_step: steps of the phase in earlier epochs, plus `step`.
        captures: rows of `CAPTURE`; `offset` counts from the start of the file.
        annex: what else the writer said of it: `gaps`, `ids`, `events`.
    """

    phase: str
    step: int
    global_step: int
    captures: Array
    annex: dict[str, Any]


class JournalTail:
    """A journal, followed from its first record on.

    Args:
        path: the journal.

    Raises:
        StorageError: it cannot be opened.
        FileRefused: it is not a journal, or its HEAD is not written yet (`journal-empty`).

    Attributes:
        head: the JSON of HEAD.
        end: the JSON of END; None as long as the epoch continues.
        descriptors: the JSON of the DESCRIPTORs, by id.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a pipe must not block
        except OSError as error:
            raise StorageError(f'cannot read the journal "{path}": {error.strerror}') from error
        weakref.finalize(self, os.close, self._descriptor)
        self._source = JournalBytes(path, self._descriptor)
        self._records = RecordReader(self._source, LARGEST_DIGESTED)
        self._first = os.pread(self._descriptor, HEADER_BYTES, 0)
        self.head = self._records.head
        self._check(head_fault(self.head))
        self.end: dict[str, Any] | None = None
        self.descriptors: list[dict[str, Any]] = []
        self._phases: list[str] = []
        self._pending: list[tuple[bytes, int]] = []

    def read(self) -> Iterator[CommittedStep]:
        """The steps that were committed since the last call; none if the file was overwritten for a later epoch.

        Raises:
            FileRefused: the journal says what no writer says (`journal-inconsistent`).
        """
        self._source.grow()
        for record in self._records if self.end is None and self.is_same() else ():
            match record.header.kind:
                case RecordKind.FRAME:
                    yield from self._frame(record)
                case RecordKind.DESCRIPTOR:
                    about = self._source.json(record.checked)
                    self._check(descriptor_fault(about))
                    self.descriptors.append(about)
                case RecordKind.END:
                    self.end = self._source.json(record.checked)
                    self._check(end_fault(self.end))

    def bytes_at(self, offset: int, size: int) -> bytes | None:
        """The bytes of a capture; None if the file was written over, or does not hold them."""
        data = os.pread(self._descriptor, size, offset) if offset + size <= self._source.size else b""
        return data if len(data) == size and self.is_same() else None

    def is_same(self) -> bool:
        """Whether the file still holds this journal, and not that of a later epoch."""
        return os.pread(self._descriptor, HEADER_BYTES, 0) == self._first

    def has_name(self) -> bool:
        """Whether the path still leads to this journal."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._descriptor)) and self.is_same()
        except OSError:
            return False

    def _frame(self, record: Record) -> Iterator[CommittedStep]:
        checked, flags = record.checked, record.header.flags
        if len(checked) < FIXED.size:
            self._check("a frame that is too short")
        step, phase, entries, annex_bytes, global_step = FIXED.unpack_from(checked)
        table_end = FIXED.size + entries * ENTRY.size
        if table_end + annex_bytes != len(checked):
            self._check("a frame whose table has another length than its count says")
        if flags == FrameFlag.ABORT:
            self._pending.clear()
            return
        self._pending.append((checked[FIXED.size : table_end], record.body + payload_start(len(checked))))
        if flags == FrameFlag.COMMIT:
            annex = self._annex(self._source.json(checked[table_end:]) if annex_bytes else {})
            if phase >= len(self._phases):
                self._check("a step of a phase without a name")
            captures = self._captures()
            if record.proof is not Proof.DAMAGED:
                yield CommittedStep(self._phases[phase], step, global_step, captures, annex)

    def _captures(self) -> Array:
        """The captures since the last commit."""
        found = []
        for table, start in self._pending:
            rows = np.frombuffer(bytearray(table), CAPTURE)
            rows["offset"] += np.where(rows["flags"] & EntryFlag.INLINE, start, 0).astype(np.uint64)
            rows["flags"] &= ~np.uint32(EntryFlag.INLINE)
            found.append(rows)
        self._pending.clear()
        captures = found[0] if len(found) == 1 else np.concatenate(found)
        if len(captures) and captures["descriptor"].max() >= len(self.descriptors):
            self._check("a capture of a series without a descriptor")
        return captures

    def _annex(self, annex: dict[str, Any]) -> dict[str, Any]:
        named = annex.pop("phases", {})
        if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
            self._check("phases without names")
        self._phases += named.values()
        self._check(annex_fault(annex))
        return annex

    def _check(self, fault: str) -> None:
        if fault:
            raise FileRefused("journal-inconsistent", f'"{self.path}" holds {fault}')
