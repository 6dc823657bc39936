"""The few system calls that write a journal, in one place, so that a test can make each of them fail."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from errno import EIO
from pathlib import Path

from probes.digest import Buffer
from probes.plain_file import open_above

Write = Callable[[Sequence[Buffer], int], int]  # of parts at an offset; how many bytes were taken

_VECTORED = hasattr(os, "pwritev")
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE of fallocate(2), which Python's own posix_fallocate cannot set
_fallocate = getattr(ctypes.CDLL(None), "fallocate64" if ctypes.sizeof(ctypes.c_long) < 8 else "fallocate", None)
if _fallocate is not None and sys.platform == "linux":
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    _fallocate.restype = ctypes.c_int
else:
    _fallocate = None


class RawFile:
    """A file that is written at offsets of the caller's choice; the descriptor is closed across exec."""

    def __init__(self, path: Path, *, create: bool) -> None:
        flags = os.O_RDWR | _CLOEXEC | (os.O_CREAT | os.O_EXCL if create else getattr(os, "O_NOFOLLOW", 0))
        self._descriptor = open_above(path, flags, 0o666)

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

    def status(self) -> os.stat_result:
        """The status of the open file."""
        return os.fstat(self._descriptor)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def write_rest(write: Write, parts: Sequence[Buffer], offset: int, done: int, total: int) -> None:
    """Write the rest of some parts of which `done` bytes are written, with as many calls as the system needs.

    Raises:
        OSError: the system refuses, or takes nothing.
    """
    while done < total:
        # One write of Linux takes at most 2 GiB - 4 KiB, so a large capture needs several.
        taken = write(_rest(parts, done), offset + done)
        if taken <= 0:
            raise OSError(EIO, "the system took no bytes")
        done += taken


def _rest(parts: Sequence[Buffer], done: int) -> list[memoryview]:
    rest = []
    for part in parts:
        view = memoryview(part).cast("B")
        if done < len(view):
            rest.append(view[done:])
        done = max(done - len(view), 0)
    return rest


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the device."""
    descriptor = os.open(path, os.O_RDONLY | _CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
