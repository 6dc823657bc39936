"""The append-only log of the open epoch: captures are copied from raw memory, and one commit makes a step safe."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

from probes.digest import canonical
from probes.errors import StorageError
from probes.host import boot_id
from probes.journal.record import ENTRY, FILL, FORMAT, EntryFlag, FrameFlag, RecordKind, descriptor_fault
from probes.journal.record_writer import RawFile, RecordLog, refusal
from probes.journal.write_buffer import WriteBuffer
from probes.plain_file import sync_directory
from probes.signature import Descriptor

DURABILITIES = ("process", "power")
LARGE_BYTES = 128 * 1024  # smaller captures are copied into a frame, which costs less than an aligned page and a system call
SMALLEST_BUFFER = 4096

_INLINE = int(EntryFlag.INLINE)
_LATE = int(EntryFlag.LATE)
_COMMIT = int(FrameFlag.COMMIT)  # a plain number: `&` of a flag is Python code, and costs a microsecond in each step
_ENTRY_BYTES = ENTRY.size
_pack_entry = ENTRY.pack_into

_MOST_VIEWS = 1024
_READABLE = 0x100  # PyBUF_READ
# A PyDLL call keeps the GIL.
_view = ctypes.PyDLL(None).PyMemoryView_FromMemory
_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_view.restype = ctypes.py_object

_views: dict[int, memoryview] = {}  # of `memory`, by address


class Journal:
    """The log of one epoch (and attempt, and rank) while it runs.

    Small captures are copied into a buffer that `commit` writes as one frame, and that is written earlier when it is full; a capture of
    128 KiB or more is written from the tensor's memory, with one system call. Memory is bounded by `buffer_bytes`, an eighth of it for
    the table, and 32 bytes for each other capture of the open step. A call that raises `StorageError` has stored nothing, and what was
    committed before it stays; unless the message says that the journal takes no more, a later call may succeed.

    Attributes:
        path: the file.
    """

    def __init__(self, log: RecordLog, *, durability: str, buffer_bytes: int) -> None:
        self.path = log.path
        self._log = log
        self._power = durability == "power"
        self._buffer = WriteBuffer(buffer_bytes)
        self._buffer_bytes = buffer_bytes
        self._late: WriteBuffer | None = None
        self._paused: dict[Hashable, WriteBuffer] = {}
        self._unused: list[WriteBuffer] = []
        self._large = min(LARGE_BYTES, self._buffer.room)
        self._descriptors = 0
        self._phases: dict[str, int] = {}
        # Gradients arrive on the threads of autograd. The lock is re-entrant: a signal handler that closes the run while a capture is
        # being copied must not wait for its own thread.
        self._lock = threading.RLock()

    def move_to(self, directory: Path) -> None:
        """Follow the file to another name in its directory; it stays open."""
        self.path = self._log.path = directory / self.path.name

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
            spare: a journal that is no longer needed; if it is there, it is overwritten and takes the name.
            opener: what opens the file.

        Raises:
            StorageError: the file exists, or the directory or the disk does not take it.
            ValueError: a durability or a buffer that is not allowed.
        """
        if durability not in DURABILITIES:
            raise ValueError(f"`durability` must be one of `process` and `power`; got `{durability}`")
        if buffer_bytes < SMALLEST_BUFFER:
            raise ValueError(f"`buffer_bytes` must be at least {SMALLEST_BUFFER}; got {buffer_bytes}")
        try:
            file, recycled = _open(path, spare, opener)
        except OSError as error:
            raise _refused(path, error) from error
        nonce = os.urandom(16)
        own = {"format": FORMAT, "nonce": nonce.hex(), "boot_id": boot_id(), "durability": durability, "recycled_bytes": recycled}
        log = RecordLog(file, path, digests=durability == "power", nonce=nonce)
        try:
            log.append(RecordKind.HEAD, (canonical({**head, **own}),))
            _publish(log, spare if recycled else None)
        except BaseException as error:  # an interrupt leaves no half journal either; raised again
            log.close()
            path.unlink(missing_ok=True)
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise _refused(path, error) from error
            raise
        return cls(log, durability=durability, buffer_bytes=buffer_bytes)

    @property
    def waited_ns(self) -> int:
        """Nanoseconds spent in system calls on the file."""
        return self._log.waited_ns

    @property
    def captures(self) -> int:
        """Captures committed so far."""
        return self._log.captures

    @property
    def pending(self) -> bool:
        """Whether a commit would store anything."""
        return self._buffer.entries > 0 or (self._late is not None and self._late.entries > 0)

    def descriptor(self, about: Descriptor) -> int:
        """Describe the captures of a series, once per (series, dtype, shape).

        Args:
            about: what the captures have in common; its epoch is given if it is not that of the journal (they arrived late).

        Returns:
            The number to add them by.

        Raises:
            StorageError: the file cannot be written.
            ValueError: dtype, shape, names or labels are not what a file can hold.
        """
        stated = {**about._asdict(), "key": about.key._asdict()}
        if about.epoch is None:
            del stated["epoch"]
        if fault := descriptor_fault(stated):  # else the sealer would refuse the whole journal
            raise ValueError(f"cannot store the series `{about.key}`: {fault}")
        with self._lock:
            number = self._descriptors
            text = canonical({**stated, "id": number})
            self._log.append(RecordKind.DESCRIPTOR, (text,))
            self._descriptors = number + 1
        return number

    def add(self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int = 0) -> None:
        """Store one capture; the bytes are copied before this returns.

        Args:
            descriptor: what `descriptor` returned.
            step: step of the capture.
            microstep: microstep of the capture.
            call: call of the capture.
            backward: backward of the capture.
            address: address of its bytes in this process, contiguous, owned by the caller.
            nbytes: how many there are.
            flags: 1 for a capture that arrived after its step was committed.

        Raises:
            ValueError: address 0 with bytes to read (a fake tensor, or freed storage).
            StorageError: the file cannot be written.
        """
        with self._lock:
            buffer = self._late_buffer() if flags & _LATE else self._buffer
            row = buffer.row
            if nbytes < self._large:
                start = buffer.fill
                if start + nbytes > buffer.room or row > buffer.last_row:
                    self._flush(buffer)
                    start, row = buffer.fill, buffer.row
                if nbytes:
                    view = _views.get(address)
                    buffer.payload[start : start + nbytes] = view if view is not None and len(view) == nbytes else memory(address, nbytes)
                _pack_entry(buffer.table, row, descriptor, flags | _INLINE, step, microstep, call, backward, start)
                buffer.fill = (start + nbytes + 7) & -8
            else:
                offset = self._write_large(buffer, address, nbytes)
                row = buffer.row
                _pack_entry(buffer.table, row, descriptor, flags, step, microstep, call, backward, offset)
            buffer.row = row + _ENTRY_BYTES

    def _late_buffer(self) -> WriteBuffer:
        """Keep late captures, which belong to committed steps, for the next commit, even if a step is aborted before it."""
        if self._late is None:
            self._late = WriteBuffer(self._buffer_bytes)
        return self._late

    def _write_large(self, buffer: WriteBuffer, address: int, nbytes: int) -> int:
        """Write a large capture with one system call, and return its offset in the file."""
        if buffer.full:
            self._flush(buffer)
        return self._log.append(RecordKind.EXTENT, (), (memory(address, nbytes),))

    def commit(self, phase: str, step: int, global_step: int, annex: Mapping[str, Any] | None = None) -> None:
        """Make everything since the last commit safe, as the journal's durability says.

        Args:
            phase: phase of the step.
            step: step within (epoch, phase).
            global_step: steps of this phase in earlier epochs, plus `step`.
            annex: what else belongs to the step (`gaps`, `ids`, free keys); plain JSON values.

        Raises:
            StorageError: the file cannot be written or synced; nothing new is committed.
        """
        with self._lock:
            number = self._phases.get(phase)
            if number is None:
                number = len(self._phases)
                annex = {**(annex or {}), "phases": {str(number): phase}}
            late = self._late if self._late is not None and self._late.entries else None
            checked, rest = self._buffer.frame(step, number, global_step, canonical(annex) if annex else b"", late)
            self._log.append(RecordKind.FRAME, checked, rest, _COMMIT, self._buffer, late)
            self._phases[phase] = number
            if self._power:
                self._log.sync()
            self._log.commits += 1

    def abort(self) -> None:
        """Discard everything since the last commit, except late captures; never fails: bytes without an entry mean nothing."""
        with self._lock:
            self._buffer.clear()

    def pause(self, step: Hashable) -> None:
        """Set the captures of the open step aside, so that another can be committed or aborted without them.

        Args:
            step: what `resume` names it by.
        """
        with self._lock:
            self._paused[step] = self._buffer
            self._buffer = self._unused.pop() if self._unused else WriteBuffer(self._buffer_bytes)

    def resume(self, step: Hashable) -> None:
        """Continue a step that was paused.

        Raises:
            StorageError: the file cannot be written.
        """
        with self._lock:
            paused = self._paused.pop(step, None)
            if paused is None:
                return
            if self._buffer.entries:  # of a step that was dropped while others overlapped it
                self._flush(self._buffer)
                paused.take(self._buffer)
            other, self._buffer = self._buffer, paused
            self._unused.append(other)

    def end(self, complete: bool, reason: str, closing: Mapping[str, Any]) -> None:
        """Write how the epoch ended, wait until all is on the device, and close; uncommitted captures are discarded.

        Raises:
            StorageError: the file cannot be written or synced; it is still open, and `close` closes it.
        """
        text = canonical({"complete": complete, "reason": reason.rstrip(FILL), "closing": closing})
        with self._lock:
            self.abort()
            if not self._power:
                self._log.sync()
                self._log.append(RecordKind.SYNC, ())
            self._log.append(RecordKind.END, (text,))
            self._log.sync()
            self._log.close()

    def close(self) -> None:
        """Close the file without an END; committed steps stay, a second call does nothing."""
        with self._lock:
            self._log.close()

    def _flush(self, buffer: WriteBuffer) -> None:
        """Write the payloads to the file, and keep their entries for the commit: until then they belong to nobody."""
        payload = (buffer.payload[: buffer.fill],)
        buffer.keep(self._log.append(RecordKind.EXTENT, (), payload) if buffer.fill else 0)


def _open(path: Path, spare: Path | None, opener: Callable[..., RawFile]) -> tuple[RawFile, int]:
    """A file to write, and how many bytes of an earlier journal it contains; the name is reserved in either case."""
    file = opener(path, create=True)
    if spare is None or not spare.exists():
        return file, 0
    try:
        recycled = opener(spare, create=False)
    except OSError:
        return file, 0
    status = recycled.status()
    if status is None or status.st_nlink != 1 or not status.st_size:
        recycled.close()
        return file, 0
    file.close()
    return recycled, status.st_size


def _refused(path: Path, error: OSError) -> StorageError:
    there = "earlier epochs are safe" if path.parent.exists() else "the run directory was removed or renamed"
    return refusal(f'cannot create the journal "{path}": {error.strerror}; {there}', error)


def _publish(log: RecordLog, spare: Path | None) -> None:
    # If the name were durable before the HEAD, a power loss would show the old journal, or none, under the new name.
    log.sync()
    if spare is not None:
        spare.replace(log.path)
    sync_directory(log.path.parent)


def memory(address: int, nbytes: int) -> memoryview:
    """A read-only view of bytes in this process's memory; it does not keep them alive.

    Raises:
        ValueError: address 0, which is that of a fake tensor, or of freed storage.
    """
    if not address:
        raise ValueError(f"a capture of {nbytes} bytes has no memory (address 0)")
    view = _views.get(address)
    if view is None or len(view) != nbytes:  # an allocator uses the same few addresses for the values of every step
        if len(_views) >= _MOST_VIEWS:
            _views.clear()
        view = _views[address] = _view(address, nbytes, _READABLE)
    return view
