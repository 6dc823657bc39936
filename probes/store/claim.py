"""Whether a run directory belongs to a process that is still running."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import NamedTuple

CLAIM = "claim.json"


class Claim(NamedTuple):
    """The note of the process that writes to a run directory.

    Attributes:
        pid: its number.
        host: the machine it runs on.
        since: when it claimed the directory, UTC.
    """

    pid: int
    host: str
    since: str

    @property
    def state(self) -> str:
        """`dead`, `alive`, or `unknown` where it runs on another machine."""
        if self.host != socket.gethostname():
            return "unknown"
        if self.pid == os.getpid():
            return "alive"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return "dead"
        except PermissionError:
            return "alive"
        return "alive"

    def __str__(self) -> str:
        return f"pid {self.pid} on host {self.host} since {self.since}"


def claim_of(directory: Path) -> Claim | None:
    """The claim on a directory; None where there is none. An unreadable one was never finished, and is nobody's."""
    try:
        note = json.loads((directory / CLAIM).read_text("utf-8"))
        return Claim(int(note["pid"]), str(note["host"]), str(note.get("since", "an unknown time")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return Claim(0, "", "an unknown time")
