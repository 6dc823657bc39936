"""Starts programs in forks of the server of this worker: what `subprocess` does with `sys.executable`, without the two seconds of imports.

Fit for programs whose start is not what is tested. What looks at the interpreter itself, at imports or at memory needs a real one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from threading import Lock
from time import monotonic, sleep
from typing import IO, Any

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable  # which tests may replace
SHIM = """#!{python} -IS
import json, os, socket, sys
if sys.argv[1:2] in (["-I"], ["-S"]):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({place!r})
request = dict(words=[*{words!r}, *sys.argv[1:]], cwd=os.getcwd(), env=dict(os.environ))
text = json.dumps(request).encode() + b"\\n"
sent = socket.send_fds(server, [text], [0, 1, 2])
server.sendall(text[sent:])
code = [json.loads(line) for line in server.makefile()][-1]["code"]
if code < 0:
    import signal
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


SHARED = "WARM_PROGRAMS"
"""The variable with the socket of a server that another process has started."""


class _Server:
    """The server of this process, started when it is first asked, or the one that it shares with others."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.folder = ""
        self.lock = Lock()

    def place(self) -> str:
        """The path of its socket."""
        if shared := os.environ.get(SHARED):
            return shared
        with self.lock:
            self.begin()
        return f"{self.folder}/socket"

    def begin(self) -> None:
        """Start it, and do not wait until it is ready."""
        if self.process is None:
            self.folder = tempfile.mkdtemp(prefix="warm-")
            command = [PYTHON, "-m", "tests.warm", f"{self.folder}/socket"]
            path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
            about = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
            self.process = subprocess.Popen(command, cwd=ROOT, env=about, stdin=subprocess.PIPE)

    def close(self) -> None:
        """End it; it also ends with this process."""
        if self.process is not None:
            process, self.process = self.process, None
            with process:
                assert process.stdin is not None
                process.stdin.close()


_server = _Server()
close = _server.close


def share() -> None:
    """Start one server for all processes that this one starts."""
    _server.begin()
    os.environ[SHARED] = f"{_server.folder}/socket"


def _connected(place: str) -> socket.socket:
    """A connection to a server, which may still import what it needs."""
    deadline = monotonic() + 300
    while True:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.connect(place)
        except (FileNotFoundError, ConnectionRefusedError):
            made.close()
            if monotonic() > deadline:
                raise
            sleep(0.05)
        else:
            return made


class Program:
    """A program that runs.

    Attributes:
        pid: its process.
        returncode: how it ended, negative for a signal; None before `wait`.
    """

    def __init__(self, words: tuple[str | Path, ...], cwd: Path | str | None, env: Mapping[str, str] | None, files: list[int]) -> None:
        self._socket = _connected(_server.place())
        request = {"words": list(map(str, words)), "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        text = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(self._socket, [text], files)
        self._socket.sendall(text[sent:])
        self._answers: IO[str] = self._socket.makefile()
        self.pid: int = self._answer()["pid"]
        self.returncode: int | None = None

    def _answer(self) -> Any:
        return json.loads(self._answers.readline())

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = 120) -> int:
        """Its exit code.

        Raises:
            TimeoutError: it takes longer; it is killed then.
        """
        if self.returncode is None:
            self._socket.settimeout(timeout)
            try:
                self.returncode = self._answer()["code"]
            except TimeoutError:
                os.killpg(self.pid, signal.SIGKILL)
                raise
            finally:
                self._answers.close()
                self._socket.close()
        assert self.returncode is not None
        return self.returncode


def start(
    *words: str | Path,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Program:
    """Begin `python WORDS...`.

    Args:
        words: what stands behind `python`.
        cwd: its folder; by default this process's.
        env: its environment; by default this process's.
        stdout: a file descriptor; by default nobody reads what it says.
        stderr: the same.
    """
    with Path(os.devnull).open("r+b") as null:
        return Program(words, cwd, env, [null.fileno(), *(null.fileno() if file is None else file for file in (stdout, stderr))])


def run(
    *words: str | Path,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    merged: bool = False,
    check: bool = False,
    timeout: float = 120,
) -> CompletedProcess[str]:
    """Run `python WORDS...` to its end.

    Args:
        words: what stands behind `python`.
        cwd: its folder; by default this process's.
        env: its environment; by default this process's.
        merged: whether what it writes to stderr goes to stdout.
        check: whether an exit code other than 0 is an error.
        timeout: seconds that it may take.

    Raises:
        CalledProcessError: where `check`.
        TimeoutError: it takes longer.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        program = start(*words, cwd=cwd, env=env, stdout=out.fileno(), stderr=(out if merged else err).fileno())
        code = program.wait(timeout)
        out.seek(0)
        err.seek(0)
        done = CompletedProcess(["python", *map(str, words)], code, out.read(), err.read())
    if check and code:
        raise subprocess.CalledProcessError(code, done.args, done.stdout, done.stderr)
    return done


def commands() -> Path:
    """A folder for the front of a PATH: `python` and `probes` in it begin in a fork too.

    With `WARM_PYTHON`, the path of that `python`, in their environment, what they start by `sys.executable` does as well.
    """
    place = Path(_server.place())
    folder = place.parent / f"bin-{os.getpid()}"
    while not place.exists():  # its server still imports
        sleep(0.05)
    if not folder.exists():
        folder.mkdir()
        for name, words in (("python", []), ("probes", [str(Path(PYTHON).with_name("probes"))])):
            shim = folder / name
            shim.write_text(SHIM.format(python=PYTHON, place=str(place), words=words))
            shim.chmod(0o755)
    return folder
