"""How much room there is on a disk."""

from __future__ import annotations

import os
from pathlib import Path


def free_bytes(directory: Path) -> int:
    """Bytes that this user may still write below a directory, or the nearest one above it that is there."""
    place = next(place for place in (directory, *directory.parents) if place.exists())
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


def free_words(path: Path) -> str:
    """How many bytes may still be written beside a file, in words."""
    try:
        return f"{free_bytes(path.parent)} bytes are free"
    except OSError:
        return "free space is not known"
