"""The machine: the id of its boot, the free bytes on a disk, how many files a process may open."""

from __future__ import annotations

import os
import re
from pathlib import Path

try:
    import resource
except ImportError:  # not defined on every system
    resource = None  # type: ignore[assignment]  # a module or None

_LINUX = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's id of the running boot; empty on a system without one."""
    try:
        return _LINUX.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def free_bytes(directory: Path) -> int:
    """Bytes that this user may still write in a directory, or in the nearest parent that exists."""
    place = next(place for place in (directory, *directory.parents) if place.exists())
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


def free_words(path: Path) -> str:
    """Free space in the directory of a file, as text for a message."""
    try:
        return f"{free_bytes(path.parent)} bytes are free"
    except OSError:
        return "free space is not known"


def most_descriptors() -> int:
    """The number of files that this process may have open; 256, the least of common systems, if it is not known or not limited."""
    most = -1 if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if most > 0 else 256


_ESCAPED = re.compile(rb"\\([0-7]{3})")  # a space of a path is `\040` in the list of mounts
_LOCAL = {
    "apfs",
    "bcachefs",
    "btrfs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hfs",
    "jfs",
    "overlay",
    "ramfs",
    "reiserfs",
    "tmpfs",
    "ufs",
    "vfat",
    "xfs",
    "zfs",
}


def is_local(directory: Path) -> bool:
    """Whether a directory is on a file system of this machine alone; if that is not known, it is assumed."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return True
    place, found, kind = os.fsencode(directory.resolve()), b"", ""
    for line in lines:
        before, _, after = line.partition(b" - ")
        mount = _ESCAPED.sub(lambda code: bytes([int(code[1], 8)]), before.split()[4])
        if len(mount) >= len(found) and (place == mount or place.startswith(mount.rstrip(b"/") + b"/")):
            found, kind = mount, os.fsdecode(after.split()[0])
    return not kind or kind in _LOCAL


def process_namespace() -> str:
    """The namespace of process numbers, of which containers have their own; empty if it is not known."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def process_fields(pid: int) -> list[str]:
    """The fields of `/proc/PID/stat` after the name of the process, first its state; none if the system does not tell them."""
    try:
        # The name is cut after 15 bytes, within a character too, and may hold brackets and spaces.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return []


def started(pid: int) -> str:
    """The start of a process, in ticks since the machine started; empty if the system does not know it."""
    return next(iter(process_fields(pid)[19:]), "")
