"""Faults of the disk, injected between a process and the C library; see shim.c."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
VARIABLE = "TORTURE"


class Calls(IntFlag):
    """The kinds of system calls that change a disk."""

    WRITE = 1
    SYNC = 2
    CREATE = 4
    RENAME = 8
    UNLINK = 16
    LINK = 32
    TRUNCATE = 64
    MKDIR = 128
    RESERVE = 512  # 256 is NOTE


NOTE = 256
ALL = Calls(255 | 512)


class Mode(IntEnum):
    """What becomes of a call."""

    COUNT = 0
    SIGNAL_BEFORE = 1
    SIGNAL_WITHIN = 2
    SIGNAL_AFTER = 3
    FAIL_ONCE = 4
    FAIL_FROM = 5
    ROOM = 6
    DELAY = 7
    STALL = 8
    SHORT = 9


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        mode: what happens.
        at: at which of the calls, from 1; with ROOM the bytes of the disk.
        calls: the kinds that count.
        value: the number of a signal or an error, or microseconds.
    """

    mode: Mode = Mode.COUNT
    at: int = 0
    calls: int = int(ALL)
    value: int = 0

    def text(self, root: Path, log: Path | None = None) -> str:
        """The fault as the shim reads it, for the files below a directory."""
        return f"{root}|{int(self.mode)}|{self.at}|{int(self.calls)}|{self.value}|{log or ''}"


def compiler() -> str | None:
    """The C compiler of this machine, if it has one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    """Compile the shim.

    Raises:
        AssertionError: there is no compiler.
    """
    library, found = folder / "shim.so", compiler()
    assert found is not None, "the faults are injected by a small C library: install a C compiler"
    if not library.exists():
        fresh = folder / f"shim.{os.getpid()}.so"
        subprocess.run([found, "-shared", "-fPIC", "-O1", "-o", fresh, SOURCE, "-ldl"], check=True)
        fresh.replace(library)
    return library


def arm(fault: str) -> None:
    """Let a fault happen in this process, into which the shim was preloaded; an empty text takes it back."""
    ctypes.CDLL(None).torture_arm(fault.encode())


def note(text: str) -> None:
    """Put a word between the calls in the log."""
    ctypes.CDLL(None).torture_note(text.encode())


def seen() -> int:
    """How many calls were counted since the fault was armed."""
    return int(ctypes.CDLL(None).torture_seen())
