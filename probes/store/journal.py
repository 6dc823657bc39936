"""The append-only log of the live epoch: captures come straight out of raw memory, one commit makes a step safe."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple
from zlib import crc32

from blake3 import blake3

from probes.clock import SeriesKey
from probes.digest import Buffer, canonical
from probes.errors import StorageError
from probes.store.boot import boot_id
from probes.store.raw_file import RawFile, sync_directory, write_all
from probes.store.record import (
    ENTRY,
    FIXED,
    FORMAT,
    HEADER_BYTES,
    NO_DIGEST,
    PAYLOAD_ALIGNMENT,
    EntryFlag,
    FrameFlag,
    Header,
    Kind,
    extent_place,
    link,
    payload_start,
    place,
    seal_header,
)

DURABILITIES = ("process", "power")
LARGE_BYTES = 64 * 1024
SMALLEST_BUFFER = 4096

_ENTRY_BYTES = ENTRY.size
_FIXED_BYTES = FIXED.size
_INLINE = int(EntryFlag.INLINE)
_PADDING = tuple(bytes(n) for n in range(PAYLOAD_ALIGNMENT))
_READABLE = 0x100  # PyBUF_READ

_pack_entry = ENTRY.pack_into
# A PyDLL call keeps the GIL, which makes it faster than ctypes.memmove for the few KiB that are gathered.
_libc = ctypes.PyDLL(None)
_copy = _libc.memcpy
_copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_copy.restype = None
_view = _libc.PyMemoryView_FromMemory
_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_view.restype = ctypes.py_object


class _Tail(NamedTuple):
    """Where the last good record ends, the number of the next one, and what its check is seeded with."""

    end: int
    sequence: int
    check: int


class Journal:
    """The log of one epoch (and attempt, and rank) while it runs.

    Small captures are copied into a buffer that is written as one frame by `commit`, or earlier when it is full; a
    capture of 64 KiB or more is written where it stands, with one system call. Memory is bounded by `buffer_bytes` and
    an eighth of it for the table. A call that raises `StorageError` has stored nothing, and what was committed before
    it stays; unless the message says that the journal is closed, a later call may succeed.

    Attributes:
        path: the file.
        captures: captures taken so far; those of aborted steps do not count.
        waited_ns: nanoseconds spent in system calls on the file.
    """

    def __init__(self, file: RawFile, path: Path, *, durability: str, buffer_bytes: int, nonce: bytes) -> None:
        self.path = path
        self.captures = 0
        self.waited_ns = 0
        self._file = file
        self._power = durability == "power"
        self._tail = _Tail(0, 0, crc32(nonce))
        self._process = os.getpid()
        self._closed = ""
        # Set while a record is being written: found set, an interrupt has left bytes behind the tail.
        self._unsettled = False
        self._void = False
        self._descriptors = 0
        self._phases: dict[str, int] = {}
        self._commits = 0
        self._kept = 0
        self._in_frames = 0
        # Re-entrant: a signal handler that closes the run while a capture is being taken must not wait for itself.
        self._lock = threading.RLock()
        self._large = min(LARGE_BYTES, buffer_bytes)
        self._room = buffer_bytes // PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT
        self._payload = bytearray(self._room)
        self._pinned = ctypes.c_char.from_buffer(self._payload)
        self._base = ctypes.addressof(self._pinned)
        self._table = bytearray(_FIXED_BYTES + max(buffer_bytes // 256, 64) * _ENTRY_BYTES)
        self._last_row = len(self._table) - _ENTRY_BYTES
        self._row = _FIXED_BYTES
        self._fill = 0

    @classmethod
    def create(
        cls,
        path: Path,
        head: Mapping[str, Any],
        *,
        durability: str = "process",
        buffer_bytes: int = 1 << 20,
        spare: Path | None = None,
        opener: Callable[..., RawFile] = RawFile,
    ) -> Journal:
        """Start the journal of an epoch.

        Args:
            path: the file; must not exist.
            head: run_id, epoch, attempt, rank, global_step_start, manifest, spec; the format's own keys are added.
            durability: `process` (a commit survives the end of the process) or `power` (and the loss of power).
            buffer_bytes: memory for small captures, at least 4 KiB.
            spare: a journal that is no longer needed; it is overwritten and takes the name, if it is there.
            opener: what opens the file.

        Raises:
            StorageError: the file exists, or the directory or the disk does not take it.
            ValueError: a durability or a buffer that is not allowed.
        """
        if durability not in DURABILITIES:
            raise ValueError(f"durability {durability!r} is not one of {', '.join(DURABILITIES)}")
        if buffer_bytes < SMALLEST_BUFFER:
            raise ValueError(f"a buffer of {buffer_bytes} bytes is too small for a journal; give it at least {SMALLEST_BUFFER}")
        try:
            file, recycled = _open(path, spare, opener)
        except OSError as error:
            raise _refusal(f"cannot create the journal {str(path)!r}: {error.strerror}", error) from error
        nonce = os.urandom(16)
        own = {"format": FORMAT, "nonce": nonce.hex(), "boot_id": boot_id(), "durability": durability}
        text = canonical({**head, **own, "recycled_bytes": recycled})
        journal = cls(file, path, durability=durability, buffer_bytes=buffer_bytes, nonce=nonce)
        try:
            journal._begin(text, spare if recycled else None)
        except BaseException:
            journal.close()
            path.unlink(missing_ok=True)
            raise
        return journal

    @property
    def bytes_written(self) -> int:
        """Bytes of the file that this journal has filled."""
        return self._tail.end

    def descriptor(
        self,
        key: SeriesKey,
        dtype: str,
        shape: tuple[int, ...],
        dims: tuple[str, ...] | None,
        coords: Mapping[str, Any],
        attrs: Mapping[str, Any],
        epoch: int | None = None,
    ) -> int:
        """Say what the captures of a series are, once per (series, dtype, shape), and return the number to add them by.

        Args:
            key: the series.
            dtype: torch's name without prefix.
            shape: sizes of the axes.
            dims: names of the axes, or None.
            coords: labels by axis name.
            attrs: what else is to stand at the series.
            epoch: the epoch of the captures where it is not that of the journal (they arrived late).

        Raises:
            StorageError: the file cannot be written.
        """
        with self._lock:
            number = self._descriptors
            about = {"id": number, "key": key._asdict(), "dtype": dtype, "shape": shape, "dims": dims}
            late = {} if epoch is None else {"epoch": epoch}
            self._append(Kind.DESCRIPTOR, (canonical({**about, "coords": coords, "attrs": attrs, **late}),))
            self._descriptors = number + 1
            return number

    def add(self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int = 0) -> None:
        """Take one capture; the bytes are copied before this returns.

        Args:
            descriptor: what `descriptor` returned.
            step: step of the capture.
            microstep: microstep of the capture.
            call: call of the capture.
            backward: backward of the capture.
            address: where its bytes stand in this process's memory, contiguous, owned by the caller.
            nbytes: how many there are.
            flags: 1 for a capture that arrived after its step was committed.

        Raises:
            ValueError: address 0 with bytes to read (a fake tensor, or freed storage).
            StorageError: the file cannot be written.
        """
        if not address and nbytes:
            raise ValueError(f"a capture of {nbytes} bytes has no memory behind it (address 0)")
        with self._lock:
            gathered = nbytes < self._large
            if self._row > self._last_row or (gathered and self._fill + nbytes > self._room):
                self._flush()
            if gathered:
                start = self._fill
                stop = (start + nbytes + 7) & -8
                _copy(self._base + start, address, nbytes)
                flags |= _INLINE
            else:
                start = self._append(Kind.EXTENT, (), (_view(address, nbytes, _READABLE),))
                stop = self._fill
            _pack_entry(self._table, self._row, descriptor, flags, step, microstep, call, backward, start)
            # No call stands between these stores, so neither an interrupt nor another thread comes between them.
            self._fill = stop
            self._row += _ENTRY_BYTES
            self.captures += 1

    def commit(self, phase: str, step: int, global_step: int, annex: Mapping[str, Any] | None = None) -> None:
        """Make everything since the last commit safe, in the sense of the journal's durability.

        Args:
            phase: phase of the step.
            step: step within (epoch, phase).
            global_step: steps of this phase in earlier epochs, plus `step`.
            annex: what else belongs to the step (`gaps`, `ids`, free keys); plain JSON values.

        Raises:
            StorageError: the file cannot be written or synced; nothing new is committed.
        """
        with self._lock:
            number = self._phases.get(phase, len(self._phases))
            notes = dict(annex or {})
            if number == len(self._phases):
                notes["phases"] = {str(number): phase}
            self._write_frame(FrameFlag.COMMIT, (step, number, global_step), canonical(notes) if notes else b"")
            self._phases[phase] = number
            if self._power:
                self._sync()
            self._commits += 1
            self._kept = self.captures
            self._in_frames = 0

    def abort(self) -> None:
        """Make everything since the last commit void; never fails, as the file hears of it with the next record."""
        with self._lock:
            self._void = self._void or self._in_frames > 0
            self._row, self._fill = _FIXED_BYTES, 0
            self.captures = self._kept
            self._in_frames = 0

    def end(self, complete: bool, reason: str, closing: Mapping[str, Any]) -> None:
        """Say how the epoch ended, wait until all is on the device, and close; what was not committed is void.

        Raises:
            StorageError: the file cannot be written or synced; it is still open, and `close` closes it.
        """
        with self._lock:
            self.abort()
            if not self._power:
                self._sync()
                self._append(Kind.SYNC, ())
            self._append(Kind.END, (canonical({"complete": complete, "reason": reason, "closing": closing}),))
            self._sync()
            self.close()

    def close(self) -> None:
        """Give the file back without a word; committed steps stay, a second call does nothing."""
        with self._lock:
            self._closed = self._closed or "it was closed"
            self._file.close()

    def _begin(self, text: bytes, spare: Path | None) -> None:
        self._append(Kind.HEAD, (text,))
        if spare is not None:
            # Were the name durable before the HEAD, a power loss would show the old journal under the new name.
            self._sync()
            spare.replace(self.path)
        if self._power:
            self._sync()
            sync_directory(self.path.parent)

    def _flush(self) -> None:
        self._write_frame(FrameFlag(0), (0, 0, 0), b"")
        self._in_frames = self.captures - self._kept

    def _write_frame(self, flags: FrameFlag, commit: tuple[int, int, int], annex: bytes) -> None:
        rows, fill = self._row, self._fill
        step, phase, global_step = commit
        FIXED.pack_into(self._table, 0, step, phase, (rows - _FIXED_BYTES) // _ENTRY_BYTES, len(annex), global_step)
        checked = rows + len(annex)
        rest: tuple[Buffer, ...] = ()
        if fill:
            rest = (_PADDING[payload_start(checked) - checked], memoryview(self._payload)[:fill])
        self._append(Kind.FRAME, (memoryview(self._table)[:rows], annex), rest, flags)

    def _append(self, kind: Kind, checked: Sequence[Buffer], rest: Sequence[Buffer] = (), flags: int = 0) -> int:
        """Write a record behind the last one and return where its body starts."""
        self._settle()
        if self._void:
            self._write(Kind.FRAME, (FIXED.pack(0, 0, 0, 0, 0),), (), FrameFlag.ABORT)
            self._void = False
        return self._write(kind, checked, rest, flags)

    def _write(self, kind: Kind, checked: Sequence[Buffer], rest: Sequence[Buffer], flags: int) -> int:
        tail = self._tail
        offset = extent_place(tail.end) if kind is Kind.EXTENT else place(tail.end)
        lead = sum(map(len, checked))
        length = lead + sum(map(len, rest))
        digest = _digest(rest) if self._power and rest else NO_DIGEST
        fields = Header(kind, flags, tail.sequence, length, lead, digest).fields()
        check = link(tail.check, fields, checked)
        body = offset + HEADER_BYTES
        holds_buffer = kind is Kind.FRAME and flags is not FrameFlag.ABORT
        self._unsettled = True
        began = perf_counter_ns()
        try:
            write_all(self._file, (seal_header(fields, check), *checked, *rest), offset, HEADER_BYTES + length)
        except OSError as error:
            raise self._roll_back(HEADER_BYTES + length, error) from error
        finally:
            self.waited_ns += perf_counter_ns() - began
        tail = _Tail(body + length, tail.sequence + 1, check)
        # No call stands between these stores, so an interrupt finds either all or none of them done.
        self._tail = tail
        self._unsettled = False
        if holds_buffer:
            self._row = _FIXED_BYTES
            self._fill = 0
        return body

    def _settle(self) -> None:
        """Refuse where the journal is closed, and cut off what an interrupted write has left."""
        if self._closed:
            raise StorageError(f"the journal {str(self.path)!r} takes no more captures: {self._closed}")
        if os.getpid() != self._process:
            raise StorageError(f"the journal {str(self.path)!r} belongs to process {self._process}, and a fork of it may not write to it")
        if self._unsettled:
            self._cut()

    def _cut(self) -> None:
        # A whole record may stand behind the tail, and it would still chain if the next one went to another place.
        try:
            self._file.truncate(self._tail.end)
        except OSError as error:
            self._closed = f"it could not be cut back to its last good record ({error.strerror})"
            raise _refusal(f"the journal {str(self.path)!r} takes no more captures: {self._closed}", error) from error
        self._unsettled = False

    def _roll_back(self, needed: int, error: OSError) -> StorageError:
        self._cut()
        return _refusal(
            f"cannot write {needed} bytes to {str(self.path)!r}: {error.strerror}; {_free(self.path)}; "
            f"the {self._commits} steps committed before are safe; free some space, or lower `limits.bytes_per_epoch`",
            error,
        )

    def _sync(self) -> None:
        began = perf_counter_ns()
        try:
            self._file.sync()
        except OSError as error:
            # After a failed sync the system may have dropped the pages, so nothing that follows could be promised.
            self._closed = f"the device did not take what was written ({error.strerror})"
            safe = f"the {self._commits} steps committed before are safe" if self._power else "nothing of it is known to be on the device"
            raise _refusal(f"cannot sync {str(self.path)!r}: {error.strerror}; {safe}; the journal is closed", error) from error
        finally:
            self.waited_ns += perf_counter_ns() - began


def _open(path: Path, spare: Path | None, opener: Callable[..., RawFile]) -> tuple[RawFile, int]:
    """A file to write and how many bytes of an earlier journal stand in it; the name is claimed in either case."""
    file = opener(path, create=True)
    if spare is None or not spare.exists():
        return file, 0
    try:
        recycled = opener(spare, create=False)
    except OSError:
        return file, 0
    status = recycled.status()
    if status.st_nlink != 1 or not status.st_size:
        recycled.close()
        return file, 0
    file.close()
    return recycled, status.st_size


def _digest(parts: Sequence[Buffer]) -> bytes:
    hasher = blake3()
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def _free(path: Path) -> str:
    try:
        status = os.statvfs(path.parent)
    except OSError:
        return "free space is not known"
    return f"{status.f_bavail * status.f_frsize} bytes are free"


def _refusal(message: str, cause: OSError) -> StorageError:
    error = StorageError(message)
    error.errno = cause.errno
    return error
