"""Open files: those that anyone may have made (regular files only, no links, bounded sizes, plain JSON), and those that are written."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from errno import EBADF, EIO
from pathlib import Path
from typing import IO, Any, NoReturn

from probes.errors import FileRefused, StorageError

try:
    import fcntl
except ImportError:  # not defined on every system
    fcntl = None  # type: ignore[assignment]  # a module or None

LARGEST_TEXT = 256 << 20
UNPACKED_FREE = 4 << 30  # what a file may hold or unpack to in any case, in bytes
HOLES_RATIO = 256  # and how many bytes more for each byte that it takes on the disk, if the rest are holes
CONSTANT_RATIO = 4096  # and if it is compressed: a chunk of one value takes 92 bytes of a sealed file for 256 KiB, a ratio of 2,850
UNPACK_ALL = "PROBES_UNPACK_ALL"
STANDARD = 2  # the descriptors up to here are those of stdin, stdout and stderr
DEEPEST = 64
LARGEST_INTEGER = 1 << 64

Data = bytes | bytearray | memoryview
Write = Callable[[Sequence[Data], int], int]  # of parts at an offset; how many bytes were taken


def regular(path: Path, *, follow: bool = False) -> int:
    """Open a regular file for reading, without waiting for the other end of a pipe; returns the descriptor.

    Args:
        path: the file.
        follow: whether a link at the end of the path is followed.

    Raises:
        FileRefused: `not-regular`: the path is a link, a directory, a device or a pipe.
        StorageError: there is no such file, or it may not be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        if not follow and path.is_symlink():
            raise FileRefused("not-regular", f'"{path}" is a link; a run contains regular files only')
        descriptor = os.open(path, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    except OSError as error:
        raise StorageError(f'"{path}" cannot be read: {error.strerror or error}') from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileRefused("not-regular", f'"{path}" is not a regular file')
    return descriptor


def most_unpacked(stored: int, ratio: int) -> float:
    """How many bytes may be read of a file that stores so many: a few kilobytes can unpack to terabytes, which nobody would wait for."""
    return float("inf") if os.environ.get(UNPACK_ALL) else UNPACKED_FREE + ratio * stored


def refuse_holes(path: Path, count: int) -> None:
    """Refuse a file that consists almost only of holes, before anybody reads or hashes it.

    Args:
        path: the file.
        count: how many bytes of it are going to be read.

    Raises:
        FileRefused: `shape-bomb`: the file states far more bytes than the disk holds of it.
    """
    about = path.stat()
    stored = getattr(about, "st_blocks", about.st_size) * 512
    if count <= most_unpacked(stored, HOLES_RATIO) or not hasattr(os, "SEEK_HOLE"):
        return
    with path.open("rb", buffering=0) as file:
        if file.seek(0, os.SEEK_HOLE) < count:  # else the file system reports no holes, and `st_blocks` means nothing
            message = f'"{path}" states {count} bytes, and the disk holds {stored} of them; the rest are holes'
            raise FileRefused("shape-bomb", f"{message}; {UNPACK_ALL}=1 in the environment reads it, if you trust who made it")


def read_plain(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """The bytes of a regular file.

    Args:
        path: the file.
        most: how many bytes are read; a larger file is refused before it is read.

    Raises:
        FileRefused: `not-regular`, or `oversized`.
        StorageError: there is no such file, or it may not be read.
    """
    with os.fdopen(regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise FileRefused("oversized", f'"{path}" has {size} bytes; at most {most} are read')
        return file.read(size)  # Python reserves memory for as many bytes as it may read


def plain_json(text: bytes | str) -> Any:
    """The value of a JSON text: at most 64 levels deep, no key twice, integers below 2^64, finite numbers, text in UTF-8.

    Raises:
        ValueError: the text is anything else.
    """
    words = text.decode() if isinstance(text, bytes) else text
    try:
        found = json.loads(words, parse_int=_integer, parse_float=_finite, parse_constant=_refuse, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} levels") from None
    _check_depth(found)
    if "\\u" in words:
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair has no UTF-8 form
    return found


def plain_object(text: bytes | str) -> dict[str, Any]:
    """The value of a JSON text that is an object.

    Raises:
        ValueError: it is anything else.
    """
    found = plain_json(text)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _integer(digits: str) -> int:
    if len(digits) > 20 or abs(number := int(digits)) >= LARGEST_INTEGER:
        raise ValueError(f"an integer of {len(digits)} digits")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):  # `1e999`, which no canonical JSON can have
        raise ValueError(f"`{digits[:20]}` is not a finite number")
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a repeated key is refused, because readers differ in which value they take."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"`{word}` is not a number")


def _check_depth(value: Any) -> None:
    """Refuse nesting that is too deep for recursive functions."""
    level = [value]
    for _ in range(DEEPEST):
        level = [below for one in level if isinstance(one, dict | list) for below in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return
    raise ValueError(f"more than {DEEPEST} levels")


def open_above(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file under a descriptor above those of stdin, stdout and stderr.

    A program that has closed one of them, as a daemon does, leaves its number to the next file that is opened, and whatever it prints
    then goes into that file.

    Args:
        path: the file.
        flags: of `os.open`.
        mode: of a file that is created.

    Returns:
        The descriptor; it is closed across exec.

    Raises:
        OSError: as `os.open`.
    """
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), mode)
    if descriptor > STANDARD:
        return descriptor
    try:
        return duplicate_above(descriptor)
    finally:
        os.close(descriptor)


def duplicate_above(descriptor: int) -> int:
    """Another descriptor of an open file, above those of stdin, stdout and stderr, closed across exec."""
    return os.dup(descriptor) if fcntl is None else fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, STANDARD + 1)


class HeldDescriptor:
    """A descriptor that stays open for long: other code of the process may close it, and its number may be another file's then.

    Attributes:
        number: the descriptor; -1 if there is none, or it is closed.
    """

    __slots__ = ("_status", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._status = os.fstat(number) if number >= 0 else None

    def status(self) -> os.stat_result | None:
        """The status of the file; None if the number is not that of the file any more."""
        if self._status is None or self.number < 0:
            return None
        try:
            now = os.fstat(self.number)
        except OSError:
            return None
        return now if os.path.samestat(now, self._status) else None

    def require(self) -> os.stat_result:
        """The status of the file.

        Raises:
            OSError: other code of the process has closed it.
        """
        status = self.status()
        if status is None:
            raise OSError(EBADF, "other code of this process has closed the file")
        return status

    @property
    def is_open(self) -> bool:
        """Whether the number still belongs to the same file."""
        return self.status() is not None

    def close(self) -> None:
        """Close it, unless other code has done so; a second call does nothing."""
        if self.is_open:
            os.close(self.number)
        self.number = -1


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing under a temporary name; it takes its name, and the place of a former file, once it is complete.

    Links stay. Pipes, devices, and what is in a folder that takes no new file are written to directly.

    Raises:
        OSError: the file cannot be written; a former file stays as it was, unless it was written to directly.
    """
    target = path.resolve()  # else a user who may write to /dev could replace /dev/stdout
    former = target.stat().st_mode if target.exists() else None
    ordinary = former is None or (stat.S_ISREG(former) and os.access(target, os.W_OK))
    if not ordinary or not os.access(target.parent, os.W_OK | os.X_OK):
        with path.open("wb") as stream:
            yield stream
        return
    temporary = target.with_name(f".{target.name[:50]}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
        if former is not None:
            temporary.chmod(stat.S_IMODE(former))
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_page(path: Path, text: str) -> None:
    """Write a text for people, and replace a former one.

    Raises:
        StorageError: it cannot be written; a former file stays as it was, where the folder takes another file.
    """
    try:
        with replacing(path) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise StorageError(f'"{path}" cannot be written: {error.strerror}') from error


def write_rest(write: Write, parts: Sequence[Data], offset: int, done: int, total: int) -> None:
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


def _rest(parts: Sequence[Data], done: int) -> list[memoryview]:
    rest = []
    for part in parts:
        view = memoryview(part).cast("B")
        if done < len(view):
            rest.append(view[done:])
        done = max(done - len(view), 0)
    return rest


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the device."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
