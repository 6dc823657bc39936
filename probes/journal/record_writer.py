"""Appending records to a file so that the last good one is always known, whatever the disk or an interrupt does."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from errno import EFBIG
from pathlib import Path
from time import perf_counter_ns
from zlib import crc32

from blake3 import blake3

from probes.digest import Buffer
from probes.errors import StorageError
from probes.host import free_words
from probes.journal.record import FIXED, HEADER_BYTES, NO_DIGEST, FrameFlag, RecordKind, extent_place, link, pack_fields, place, seal_header
from probes.journal.write_buffer import WriteBuffer
from probes.plain_file import HeldDescriptor, open_above, write_rest
from probes.printable import counted

# Records up to this size get a digest in every durability, at 10 us a step at most, and are then proven on any machine. A digest of
# larger records would cost as much as writing them.
PROVEN_BYTES = 32 << 10
_LEAST_AHEAD = 1 << 20
_COMMIT = int(FrameFlag.COMMIT)
_MOST_AHEAD = 16 << 20
_VECTORED = hasattr(os, "pwritev")
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE of fallocate(2), which Python's own posix_fallocate cannot set
_fallocate = getattr(ctypes.CDLL(None), "fallocate64" if ctypes.sizeof(ctypes.c_long) < 8 else "fallocate", None)
if _fallocate is not None and sys.platform == "linux":
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    _fallocate.restype = ctypes.c_int
else:
    _fallocate = None


class RawFile:
    """A file that is written at offsets of the caller's choice, with a few system calls that a test can make fail.

    The descriptor is closed across exec.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else getattr(os, "O_NOFOLLOW", 0))
        self._held = HeldDescriptor(open_above(path, flags, 0o666))
        self._descriptor = self._held.number

    def write(self, parts: Sequence[Buffer], offset: int) -> int:
        """Write consecutive parts with one system call, and return the number of bytes written."""
        if _VECTORED:
            return os.pwritev(self._descriptor, parts, offset)
        return os.pwrite(self._descriptor, parts[0], offset)

    def reserve(self, start: int, stop: int) -> bool:
        """Reserve disk space for some bytes after the end of the file, whose size stays; return whether the system supports that."""
        return _fallocate is not None and _fallocate(self._descriptor, _KEEP_SIZE, start, stop - start) == 0

    def sync(self) -> None:
        """Wait until the data is on the device."""
        getattr(os, "fdatasync", os.fsync)(self._descriptor)

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        os.ftruncate(self._descriptor, size)

    def status(self) -> os.stat_result | None:
        """The status of the open file; None if other code of the process has closed it."""
        return self._held.status()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._descriptor = -1
        self._held.close()


class RecordLog:
    """The chain of records of one journal.

    The file's space on the disk is taken ahead of it, as much as the file has but 16 MiB at most: writing then costs a sixth
    less, since the file system looks for blocks once and not with every write.

    Attributes:
        path: the file.
        end: where the last good record ends.
        commits: steps committed so far; the journal counts them.
        captures: captures committed so far.
        waited_ns: nanoseconds spent in system calls on the file.
    """

    def __init__(self, file: RawFile, path: Path, *, digests: bool, nonce: bytes) -> None:
        self.path = path
        self.commits = 0
        self.captures = 0
        self.waited_ns = 0
        self._file = file
        self._digests = digests
        self.end = 0
        status = file.status()
        self._reserved = status.st_size if status is not None else 0
        self._sequence = 0
        self._check = crc32(nonce)
        self._process = os.getpid()
        self._closed = ""
        # Set while a record is being written; if it is set before a write, an interrupt has left bytes after the end.
        self._unsettled = False

    def append(
        self,
        kind: RecordKind,
        checked: Sequence[Buffer],
        rest: Sequence[Buffer] = (),
        flags: int = 0,
        taken: WriteBuffer | None = None,
        late: WriteBuffer | None = None,
    ) -> int:
        """Write one record after the last.

        Args:
            kind: what it is.
            checked: the parts of its body that the check covers.
            rest: the other parts.
            flags: those of a frame.
            taken: the buffer to clear once the record is written.
            late: another one.

        Returns:
            Where the body starts in the file.

        Raises:
            StorageError: the record is not in the file; all before it are.
        """
        self._settle()
        offset = extent_place(self.end) if kind is RecordKind.EXTENT else place(self.end)
        lead = sum(map(len, checked))
        length = lead + sum(map(len, rest))
        digest = _digest(rest) if rest and (self._digests or length - lead <= PROVEN_BYTES) else NO_DIGEST
        fields = pack_fields(kind, flags, self._sequence, length, lead, digest)
        check = link(self._check, fields, checked)
        captures = (taken.entries if taken is not None else 0) + (late.entries if late is not None else 0)
        body = offset + HEADER_BYTES
        end = body + length
        if end > self._reserved:
            self._reserve(end)
        head = (seal_header(fields, check), *checked)
        if flags & _COMMIT and rest and digest is NO_DIGEST:
            # A kill may end a write between two pages, and an overwritten file is long enough already. So the header, which makes the
            # step safe, comes after the bytes that nothing else proves.
            self._write(rest, body + lead, length - lead)
            self._write(head, offset, HEADER_BYTES + lead)
        else:
            self._write((*head, *rest), offset, end - offset)
        # Python handles signals at calls. There is none between these stores, so an interrupt finds all or none of them done.
        self.end = end
        self._sequence += 1
        self._check = check
        self._unsettled = False
        if taken is not None:
            taken.row = FIXED.size
            taken.fill = 0
            taken.kept_rows = 0
            taken.kept = None
        if late is not None:
            late.row = FIXED.size
            late.fill = 0
            late.kept_rows = 0
            late.kept = None
        self.captures += captures
        return body

    @property
    def safe(self) -> str:
        """The sentence that says which steps are safe."""
        return (
            f"{counted(self.commits, 'step')} committed before it {'is' if self.commits == 1 else 'are'} safe"
            if self.commits
            else "no step was committed to this journal; the epochs and segments before it are safe"
        )

    def sync(self) -> None:
        """Wait until all records are on the device.

        Raises:
            StorageError: they may not be; the log is closed.
        """
        began = perf_counter_ns()
        try:
            self._file.sync()
        except OSError as error:
            self._look()
            # After a failed sync the system may have dropped the pages, so no later record is certain to be stored.
            self._closed = f"the device did not accept the data ({error.strerror})"
            safe = self.safe if self._digests else f"{self.safe} unless the machine stops"
            raise refusal(f'cannot sync "{self.path}": {error.strerror}; {safe}; the journal takes no more captures', error) from error
        finally:
            self.waited_ns += perf_counter_ns() - began

    def _look(self) -> None:
        """Never write to a file that another process has removed, nor to one of the program that has got the number of the descriptor."""
        status = self._file.status()
        if status is None:
            self._closed = "other code of this process has closed its file"
            raise StorageError(f'other code of this process has closed all files, or that of the journal "{self.path}"; {self.safe}')
        if not status.st_nlink:
            self._closed = "another process has removed it"
            count = self.commits
            held = f"{counted(count, 'step')} committed to it {'is' if count == 1 else 'are'}" if count else "its steps are"
            raise StorageError(f'the journal "{self.path}" was removed by another process; {held} lost unless it was sealed before')

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._closed = self._closed or "it was closed"
        self._file.close()

    def _settle(self) -> None:
        """Refuse if the log or its file is closed, and truncate the bytes of an interrupted write."""
        if self._closed:
            raise StorageError(f'the journal "{self.path}" takes no more captures: {self._closed}')
        if os.getpid() != self._process:
            raise StorageError(f'the journal "{self.path}" belongs to process {self._process}; a fork of that process cannot write to it')
        self._look()
        if self._unsettled:
            self._cut()

    def _reserve(self, end: int) -> None:
        """Reserve disk space; if the system refuses, never try again: each write then allocates its own."""
        stop = end + min(max(end, _LEAST_AHEAD), _MOST_AHEAD)
        self._reserved = stop if self._file.reserve(self.end, stop) else sys.maxsize

    def _write(self, parts: Sequence[Buffer], offset: int, total: int) -> None:
        self._unsettled = True
        began = perf_counter_ns()
        try:
            done = self._file.write(parts, offset)
            if done != total:
                write_rest(self._file.write, parts, offset, done, total)
        except OSError as error:
            self._look()
            self._cut()
            state, way = f"{free_words(self.path)}; ", "free disk space, or capture less"
            if error.errno == EFBIG:
                state, way = "", "raise the largest size of a file (`ulimit -f`), or split epochs into segments (`seal`)"
            raise refusal(f'cannot write {total} bytes to "{self.path}": {error.strerror}; {state}{self.safe}; {way}', error) from error
        finally:
            self.waited_ns += perf_counter_ns() - began

    def _cut(self) -> None:
        # A complete record may follow the end, and it would still be linked if the next one went to another place.
        try:
            self._file.truncate(self.end)
        except OSError as error:
            self._closed = f"it could not be truncated to its last valid record ({error.strerror})"
            raise refusal(f'the journal "{self.path}" takes no more captures: {self._closed}; {self.safe}', error) from error
        self._unsettled = False


def refusal(message: str, cause: OSError) -> StorageError:
    """An error with the errno of its cause, so that callers can distinguish a full disk from a defective one."""
    error = StorageError(message)
    error.errno = cause.errno
    return error


def _digest(parts: Sequence[Buffer]) -> bytes:
    hasher = blake3()
    for part in parts:
        hasher.update(part)
    return hasher.digest()
