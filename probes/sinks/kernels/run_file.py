"""Files of sinks in a run directory: which names are allowed, and the name on each rank."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from probes.plain_file import open_above

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.[a-z0-9]{1,16}")
RESERVED = re.compile(r"ledger.*|run\.json|spec\.yaml|.*\.(h5|journal|tmp|lock)")  # names that the record uses


def name_fault(name: str) -> str:
    """The reason why a sink cannot have a file with this name; empty if it can."""
    if not PLAIN.fullmatch(name):
        return "a sink writes a plain file in the run directory: letters, digits, _ and -, then a suffix such as .csv"
    return "the run itself writes files of such names" if RESERVED.fullmatch(name) else ""


def on_rank(name: str, rank: int) -> str:
    """The name on a rank: `log.jsonl` on rank 0, `log.rank-0003.jsonl` on rank 3."""
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.rank-{rank:04d}.{suffix}" if rank else name


def open_to_append(path: Path, end: Callable[[int, int], int]) -> int:
    """A descriptor of a file opened to append; an incomplete end that a killed process left is truncated.

    Args:
        path: the file, which may be absent.
        end: finds the end of what is whole, from a descriptor and the size of the file.

    Raises:
        OSError: the file cannot be opened, is a link, or is not a plain file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    handle = open_above(path, flags, 0o666)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise OSError(f'"{path}" is a link or not a plain file')
        os.ftruncate(handle, end(handle, status.st_size))
    except BaseException:  # the descriptor is closed, also after an interrupt; raised again
        os.close(handle)
        raise
    return handle
