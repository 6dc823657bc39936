from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from probes.proof import untrusted
from probes.proof.sandbox.confinement import PROTECTIONS, confine
from probes.proof.untrusted import verify_untrusted
from tests.proof.runs import small, write_run

TRIES = """
import ctypes, json, os, pathlib, resource, socket, subprocess, sys, threading
from probes.proof.sandbox.confinement import confine
folder = pathlib.Path(sys.argv[1])
held = confine()
tries = {
    "write": lambda: (folder / "new").write_text("x"),
    "append": lambda: (folder / "old").open("a"),
    "truncate": lambda: os.truncate(folder / "old", 0),
    "remove": lambda: (folder / "old").unlink(),
    "rename": lambda: (folder / "old").rename(folder / "other"),
    "folder": lambda: (folder / "made").mkdir(),
    "link": lambda: (folder / "link").symlink_to("/etc/passwd"),
    "run": lambda: subprocess.run([sys.executable, "-V"]),
    "internet": lambda: socket.socket(),
    "datagram": lambda: socket.socket(type=socket.SOCK_DGRAM),
    "local": lambda: socket.socket(socket.AF_UNIX),
    "kill": lambda: os.kill(os.getppid(), 0),
    "mode": lambda: (folder / "old").chmod(0o600),
    "mode of an open file": lambda: os.fchmod(os.open(folder / "old", os.O_RDONLY), 0o600),
    "times": lambda: os.utime(folder / "old", (0, 0)),
    "owner": lambda: os.chown(folder / "old", os.getuid(), os.getgid()),
    "attribute": lambda: os.setxattr(folder / "old", "user.a", b"x"),
    "fork": lambda: os.fork() or os._exit(0),
    "spawn": lambda: os.posix_spawn(sys.executable, [sys.executable, "-V"], {}),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 0),
    "limits": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE),
}
done = {}
for name, work in tries.items():
    try:
        work()
        done[name] = "done"
    except PermissionError:
        done[name] = "refused"
threading.Thread(target=lambda: done.update(thread="done")).start()
done["read"] = (folder / "old").read_text()
print(json.dumps([held, done]))
"""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, str], Path]:
    folder = tmp_path_factory.mktemp("confined")
    (folder / "old").write_text("content")
    done = subprocess.run([sys.executable, "-c", TRIES, str(folder)], capture_output=True, text=True, check=True)
    held, found = json.loads(done.stdout)
    return held, found, folder


def test_a_confined_process_reads_and_starts_threads(tried: tuple[list[str], dict[str, str], Path]) -> None:
    _, found, folder = tried
    assert (found["read"], found["thread"]) == ("content", "done")
    assert [path.name for path in folder.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("protection", "what"),
    [("files", name) for name in ("write", "append", "truncate", "remove", "rename", "folder", "link", "run")]
    + [("network", name) for name in ("internet", "datagram", "local", "run", "kill")]
    + [
        ("network", name) for name in ("mode", "mode of an open file", "times", "owner", "attribute", "fork", "spawn", "priority", "limits")
    ],
)
def test_operations_that_the_kernel_can_refuse_are_refused(
    tried: tuple[list[str], dict[str, str], Path], protection: str, what: str
) -> None:
    held, found, _ = tried
    if protection not in held:
        pytest.skip(f"this kernel does not keep a process from {protection}")
    assert found[what] == "refused"


def test_a_kernel_that_cannot_confine_is_named_in_the_verdict(
    tried: tuple[list[str], dict[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "run", epochs=1, source=small)
    codes = {finding.code for finding in verify_untrusted(tmp_path / "run").findings}
    assert ("unconfined" in codes) == (set(tried[0]) != set(PROTECTIONS))
    monkeypatch.setattr(untrusted, "EXPECTED", (*PROTECTIONS, "another world"))
    (finding,) = (one for one in verify_untrusted(tmp_path / "run").findings if one.code == "unconfined")
    assert "another world" in finding.message
    assert finding.note


@pytest.mark.usefixtures("greeting")
def test_the_greeting_of_an_interpreter_is_not_taken_for_a_verdict(tmp_path: Path) -> None:
    write_run(tmp_path / "run", epochs=1, source=small)
    assert verify_untrusted(tmp_path / "run").ok


def test_outside_of_linux_nothing_is_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> object:
        raise OSError

    monkeypatch.setattr("ctypes.CDLL", missing)
    assert confine() == ()
