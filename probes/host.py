"""The machine: which boot it is, and how many bytes are free on a disk."""

from __future__ import annotations

import os
from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's id of the running boot; empty on a system that has none."""
    try:
        return _LINUX.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def free_bytes(directory: Path) -> int:
    """Bytes that this user may still write below a directory, or below the nearest parent that exists."""
    place = next(place for place in (directory, *directory.parents) if place.exists())
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


def free_words(path: Path) -> str:
    """Free space in the directory of a file, as text for a message."""
    try:
        return f"{free_bytes(path.parent)} bytes are free"
    except OSError:
        return "free space is not known"
