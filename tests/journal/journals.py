"""Journals to write and read back in tests, and disks that fail."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

from probes.clock import SeriesKey
from probes.digest import Buffer
from probes.journal.record_writer import RawFile
from probes.journal.scan import Scan, scan
from probes.journal.writer import Journal
from probes.signature import Descriptor

HEAD = {"run_id": "r", "epoch": 3, "attempt": 1, "rank": 0, "global_step_start": {"train": 0}, "manifest": {}, "spec": "version: 1\n"}


class Taker:
    """A journal that takes bytes, and remembers which of them were acknowledged."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.journal = Journal.create(path, HEAD, **options)
        self.acknowledged: list[list[bytes]] = []
        self.step: list[bytes] = []
        self._descriptors: dict[int, int] = {}

    def descriptor(self, size: int) -> int:
        if size not in self._descriptors:
            key = SeriesKey("acts", f"layer{size}", "output", "train")
            self._descriptors[size] = self.journal.descriptor(Descriptor(key, "uint8", (size,), None, {}, {}))
        return self._descriptors[size]

    def add(self, data: bytes, flags: int = 0) -> None:
        number = self.descriptor(len(data))
        memory = ctypes.create_string_buffer(data, len(data) + 1)
        self.journal.add(number, len(self.acknowledged), 0, len(self.step), 0, ctypes.addressof(memory), len(data), flags)
        ctypes.memset(memory, 0xEE, len(data))  # a reference that is kept instead of a copy shows other bytes
        self.step.append(data)

    def commit(self, annex: dict[str, Any] | None = None) -> None:
        step = len(self.acknowledged)
        self.journal.commit("train", step, 100 + step, annex)
        self.acknowledged.append(self.step)
        self.step = []


def end_of(journal: Journal) -> int:
    """Where the last record of a journal ends in its file."""
    return journal._log.end


def steps(found: Scan, raw: bytes) -> list[list[bytes]]:
    """The payloads of each committed step."""
    result = []
    for commit in found.commits:
        rows = found.captures[int(commit["first"]) : int(commit["first"] + commit["count"])]
        spans = [(int(row["offset"]), found.descriptors[int(row["descriptor"])]["shape"][0]) for row in rows]
        result.append([raw[at : at + size] for at, size in spans])
    return result


def read(path: Path, **options: Any) -> tuple[Scan, list[list[bytes]]]:
    found = scan(path, **options)
    return found, steps(found, path.read_bytes())


class FaultyFile(RawFile):
    """A file whose system calls can be made to fail.

    Attributes:
        room: bytes at which the disk is full; None for a disk without end.
        at_most: most bytes that one call takes.
        error: what every write raises; 0 for none.
        sync_error: what a sync raises; 0 for none.
        truncate_error: what a cut raises; 0 for none.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        super().__init__(path, create=create)
        self.room: int | None = None
        self.at_most: Callable[[], int] = lambda: 1 << 62
        self.error = 0
        self.sync_error = 0
        self.truncate_error = 0
        self.syncs = 0

    def write(self, parts: list[Buffer], offset: int) -> int:  # type: ignore[override]  # the parts are a list here
        if self.error:
            raise OSError(self.error, "injected")
        whole = b"".join(parts)[: self.at_most()]
        if self.room is not None and offset + len(whole) > self.room:
            whole = whole[: max(self.room - offset, 0)]
            if not whole:
                raise OSError(ENOSPC, "No space left on device")
        return super().write([whole], offset)

    def sync(self) -> None:
        self.syncs += 1
        if self.sync_error:
            raise OSError(self.sync_error, "injected")
        super().sync()

    def truncate(self, size: int) -> None:
        if self.truncate_error:
            raise OSError(self.truncate_error, "injected")
        super().truncate(size)


class Opener:
    """Opens faulty files and keeps the last one, so that a test can reach it."""

    def __init__(self) -> None:
        self.file: FaultyFile

    def __call__(self, path: Path, *, create: bool) -> FaultyFile:
        self.file = FaultyFile(path, create=create)
        return self.file
