from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import probes
import probes.processes.detached_process
from probes.processes.detached_process import DetachedProcess
from tests.processes.running import runs, until_gone
from tests.warm import programs

ECHO = [sys.executable, "-c", "import os, sys\nfor line in sys.stdin.buffer: os.write(1, line)"]


def pipes() -> int:
    """Count the open ends of pipes of this process."""
    gc.collect()  # an object of an earlier test may hold some
    return sum(os.path.realpath(entry).rpartition("/")[2].startswith("pipe:") for entry in Path("/proc/self/fd").iterdir())


def test_it_runs_in_another_session_and_cannot_be_waited_for_as_a_child() -> None:
    process = DetachedProcess(ECHO, bufsize=0)
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    assert runs(process.pid)
    assert os.getsid(process.pid) != os.getsid(0)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"a\n")
    assert process.stdout.readline() == b"a\n"
    assert not process.has_ended()
    process.hang_up()
    assert process.has_ended(60)
    process.close()
    until_gone(process.pid)


def test_files_that_have_got_the_numbers_of_its_pipes_are_not_closed(tmp_path: Path) -> None:
    process = DetachedProcess(ECHO, bufsize=0)
    own = os.open(tmp_path / "own", os.O_RDWR | os.O_CREAT)
    numbers = [process._life.number, *(pipe.number for pipe in process._pipes)]
    for number in numbers:
        os.dup2(own, number)  # as after `os.closerange`, once the program has opened files
    assert not process.is_reachable
    assert process.has_ended(60)  # it has seen the end of its input
    process.close()
    for number in (own, *numbers):
        os.close(number)  # each is open
    assert not (tmp_path / "own").read_bytes()
    until_gone(process.pid)


def test_it_can_be_killed_and_its_end_is_seen() -> None:
    process = DetachedProcess(ECHO)
    process.kill()
    assert process.has_ended(60)
    process.kill()
    process.close()
    until_gone(process.pid)


def test_the_end_of_a_process_that_was_let_go_is_its_own() -> None:
    process = DetachedProcess(ECHO)
    process.close()
    until_gone(process.pid)


def test_debuggers_that_change_the_commands_of_python_do_not_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    start = subprocess.Popen.__init__

    def seen(process: Any, words: list[str], *more: Any, **options: Any) -> None:
        commands.append(words[0])
        start(process, words, *more, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", seen)  # as debugpy and VizTracer do
    process = DetachedProcess(ECHO)
    process.close()
    until_gone(process.pid)
    assert commands == ["/bin/sh"]


def test_it_starts_where_the_system_has_no_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.processes.detached_process._BY_SHELL", ())
    process = DetachedProcess(ECHO)
    assert runs(process.pid)
    process.close()
    until_gone(process.pid)


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ENOMEM])
def test_a_process_that_the_system_refuses_is_an_error_without_leftovers(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"import os\ndef refuse(): raise OSError({error}, '')\nos.fork = refuse\n"
    monkeypatch.setattr("probes.processes.detached_process._START", text + probes.processes.detached_process._START)
    before = pipes()
    with pytest.raises(OSError, match=os.strerror(error)) as raised:
        DetachedProcess(ECHO)
    assert raised.value.errno == error
    assert pipes() == before


def test_an_executable_that_is_missing_ends_at_once() -> None:
    process = DetachedProcess(["/nonexistent/python"], stderr=os.open(os.devnull, os.O_WRONLY))
    assert process.has_ended(60)
    process.close()


def test_a_start_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.processes.detached_process.STARTS_WITHIN", 0.1)
    monkeypatch.setattr("probes.processes.detached_process._START", "import time; time.sleep(1000)")
    with pytest.raises(OSError, match=os.strerror(errno.EAGAIN)):
        DetachedProcess(ECHO)


def test_a_start_that_is_interrupted_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = pipes()
    with monkeypatch.context() as patched:
        patched.setattr(DetachedProcess, "_hears", interrupt)
        with pytest.raises(KeyboardInterrupt):
            DetachedProcess(ECHO)
    assert pipes() == before


WAITS = """
import os
import torch
from torch import nn

for code in (3, 4):
    if not os.fork():
        os._exit(code)
model = nn.Sequential(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x in torch.utils.data.DataLoader(torch.ones(3, 2)):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
codes = []
while True:
    try:
        codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
    except ChildProcessError:
        break
print(sorted(codes))
"""


@pytest.mark.parametrize("locks", [True, False])
def test_a_program_that_waits_for_all_of_its_children_ends(tmp_path: Path, locks: bool) -> None:
    spec, script = tmp_path / "spec.yaml", tmp_path / "train.py"
    spec.write_text("version: 1\nname: a\nprobes: {p: {hook: forward, modules: ['0']}}\n", encoding="utf-8")
    no_locks = "import fcntl\ndef refuse(*_): raise OSError(37, 'No locks available')\nfcntl.flock = fcntl.lockf = refuse\n"
    script.write_text(("" if locks else no_locks) + dedent(WAITS), encoding="utf-8")
    done = programs.run("-m", "probes", "run", "--out", tmp_path / "run", spec, script, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[3, 4]\n"), done.stderr
    assert probes.open(tmp_path / "run")["p", "0"].numpy().shape == (6, 1, 2)
