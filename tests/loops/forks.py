"""The other end of `server.py`: programs run in forks of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        code: its exit code; negative for a signal.
        out: what it wrote to stdout.
        err: what it wrote to stderr.
    """

    code: int
    out: str
    err: str


class Forks:
    """Runs programs in forks of a process that is started when the first is asked for."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def without_probes(self, folder: Path, log: Path, *arguments: str) -> Ended:
        """A script alone, watched by hand; what was seen goes to `log`."""
        return self._ask(folder, str(log), arguments)

    def with_probes(self, folder: Path, *arguments: str) -> Ended:
        """`probes ARGUMENTS...` in a folder."""
        return self._ask(folder, "", arguments)

    def close(self) -> None:
        """End the process."""
        if self._server is not None and self._server.stdin is not None and self._server.stdout is not None:
            self._server.stdin.close()
            self._server.wait(10)
            self._server.stdout.close()
            self._server = None

    def _ask(self, folder: Path, log: str, arguments: tuple[str, ...]) -> Ended:
        server = self._server = self._server or started()
        if server.stdin is None or server.stdout is None:
            raise AssertionError("the server has no pipes")
        out, err = (folder.with_name(f"{folder.name}.{name}") for name in ("stdout", "stderr"))
        request = {"folder": str(folder), "log": log, "arguments": arguments, "stdout": str(out), "stderr": str(err), "seconds": 60}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        return Ended(answer["code"], out.read_text(errors="replace"), err.read_text(errors="replace"))


def started() -> subprocess.Popen[str]:
    """The process, which needs a second or two to import torch."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "tests.loops.server"]
    return subprocess.Popen(command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
