"""Which boot of the machine this is."""

from __future__ import annotations

from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's id of the running boot; empty where the system has none to ask for."""
    try:
        return _LINUX.read_text(encoding="ascii").strip()
    except OSError:
        return ""
