"""A process that has imported torch and probes once, and becomes each program that it is requested in a fork.

`python -m tests.warm SOCKET` answers on a Unix socket. A request is one JSON line (`words` behind `python`, `cwd`, `env`) that
carries three file descriptors; the answers are the process id at once and the exit code at the end, one line each. The child becomes
the program: its signals, exit handlers and threads are those of an interpreter of its own. Whoever closes the connection kills it.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import io
import json
import os
import random
import runpy
import selectors
import shutil
import signal
import socket
import sys
import warnings
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py  # noqa: F401  # imported once for all programs, here and below
import numpy as np
import torch
import torch._dynamo
import torch.utils.data

import probes.cli
import probes.commands.diff
import probes.commands.recover
import probes.commands.run
import probes.commands.show
import probes.commands.verify
import probes.runner.attach
import probes.script.attach_to_script
import probes.script.session  # imported before the first fork
from probes.provenance.packages import packages

with suppress(ModuleNotFoundError):
    importlib.import_module("sklearn.datasets")  # of the example

LONGEST = 1 << 22  # bytes of a request
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Server:
    """Forks a child for each request, and tells how it ended."""

    def __init__(self, place: str) -> None:
        self.place = Path(place)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(place)
        self.listener.listen(64)
        self.selector = selectors.DefaultSelector()
        self.children: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor of the process: its id, and who waits for it

    def serve(self) -> tuple[dict[str, Any], list[int]]:
        """Answer requests until stdin closes; returns in the child, with its request and its three descriptors."""
        self.selector.register(self.listener, selectors.EVENT_READ, "request")
        self.selector.register(sys.stdin.fileno(), selectors.EVENT_READ, "end")
        while True:
            for key, _ in self.selector.select():
                if key.data == "end":
                    shutil.rmtree(self.place.parent, ignore_errors=True)
                    os._exit(0)
                elif key.data == "request":
                    found = self._begin()
                    if found is not None:
                        return found
                elif key.data == "client":
                    self._gone(key.fileobj)
                elif key.data == "child":
                    self._ended(key.fd)

    def _begin(self) -> tuple[dict[str, Any], list[int]] | None:
        client, _ = self.listener.accept()
        text, files, _, _ = socket.recv_fds(client, LONGEST, 3)
        while not text.endswith(b"\n"):
            piece = client.recv(LONGEST)
            if not piece:  # it has ended without a request
                client.close()
                for file in files:
                    os.close(file)
                return None
            text += piece
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the child is the program
        child = os.fork()
        if child == 0:
            self._close()
            client.close()
            return json.loads(text), files
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for file in files:
            os.close(file)
        watched = os.pidfd_open(child)
        self.children[watched] = child, client
        self.selector.register(watched, selectors.EVENT_READ, "child")
        self.selector.register(client, selectors.EVENT_READ, "client")
        client.sendall(f'{{"pid": {child}}}\n'.encode())
        return None

    def _ended(self, watched: int) -> None:
        child, client = self.children.pop(watched)
        self.selector.unregister(watched)
        os.close(watched)
        _, status = os.waitpid(child, 0)
        with suppress(OSError):
            client.sendall(f'{{"code": {os.waitstatus_to_exitcode(status)}}}\n'.encode())
        with suppress(KeyError):
            self.selector.unregister(client)
        client.close()

    def _gone(self, client: Any) -> None:
        self.selector.unregister(client)
        for child, one in self.children.values():
            if one is client:
                os.killpg(child, signal.SIGKILL)

    def _close(self) -> None:
        """Keep nothing of the server in a child."""
        self.selector.close()
        self.listener.close()
        for watched, (_, client) in self.children.items():
            os.close(watched)
            client.close()


def become(request: dict[str, Any], files: list[int], base: list[str]) -> None:
    """Be the program that is requested, in a session of its own."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    _streams()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    random.seed()
    np.random.seed()
    torch.set_num_threads(int(request["env"].get("OMP_NUM_THREADS", "0")) or os.cpu_count() or 1)
    for name in [name for name in sys.modules if name == "tests" or name.startswith("tests.")]:
        del sys.modules[name]
    words, beside = _options(request["words"])
    sys.executable = request["env"].get("WARM_PYTHON", sys.executable)
    sys.orig_argv = [sys.executable, *request["words"]]
    known = [entry for entry in request["env"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    _run(words, [*known, *base], beside)


def _streams() -> None:
    """Open stdin, stdout and stderr as an interpreter does that has just begun."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # the program's for all its life
    out = open(1, "wb", buffering=0 if unbuffered else -1, closefd=False)  # noqa: SIM115  # stays open for the life of the program
    sys.stdout = io.TextIOWrapper(out, "utf-8", line_buffering=os.isatty(1), write_through=unbuffered)
    sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)  # noqa: SIM115  # as above
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]  # as an interpreter does


def _options(words: list[str]) -> tuple[list[str], bool]:
    """Carry out the options of the interpreter that the tests use; the other words, and whether modules next to the program are found."""
    beside = True
    while words and words[0] in ("-u", "-P", "-W"):
        beside = beside and words[0] != "-P"
        if words[0] == "-W":
            warnings.simplefilter(words[1])  # type: ignore[arg-type]  # such as `error`
        words = words[2 if words[0] == "-W" else 1 :]
    return words, beside


def _run(words: list[str], path: list[str], beside: bool) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if words[0] == "-m":
        sys.path[:] = [str(Path.cwd()), *path] if beside else path
        sys.argv = words[1:]
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  # what the interpreter itself calls for `-m`
        return
    sys.argv = words if words[0] != "-c" else ["-c", *words[2:]]
    folder = "" if words[0] == "-c" else str(Path(words[0]).resolve().parent)
    sys.path[:] = [folder, *path] if beside else path
    if words[0] == "-c":
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
        return
    main.__file__ = words[0]
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", words[0])
    exec(compile(Path(words[0]).read_bytes(), words[0], "exec"), main.__dict__)


def main(program: AbstractContextManager[None]) -> None:
    """Serve; in a child, be the program, inside a context."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # An editable installation has its folder at the end; `site` does not add it where PYTHONPATH has it. Spawned processes need it.
    base = [*(entry for entry in sys.path[1:] if entry not in known), str(Path(probes.__file__).parents[1])]
    packages()  # found once for all programs
    torch.set_num_threads(1)
    server = Server(sys.argv[1])
    gc.collect()
    gc.freeze()  # or the end of each child looks through all of torch, which takes a second
    request, files = server.serve()
    with program:
        become(request, files, base)
