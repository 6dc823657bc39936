"""Programs that replace their process by another one: who starts itself again keeps the probes, and everyone else is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import probes
from probes.script.replaced_process import ReplacedProcess
from probes.script.run_request import Command
from tests.script.conftest import PRELUDE

AGAIN = f"""
import os, sys
if "SECOND" not in os.environ:
    os.execve(sys.executable, [sys.executable, "-X", "utf8", *sys.argv], {{**os.environ, "SECOND": "1"}})
{PRELUDE}
net = Net()
optimizer = SGD(net.parameters(), lr=0.1)
for x, in loader(8, 2):
    step(net, optimizer, x)
print(sys.flags.utf8_mode, sys.argv[1:])
"""


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    (folder / "spec.yaml").write_text('version: 1\nprobes: {a: {modules: [""], values: [output]}}\n')
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "probes", "run", "--out", "run", "spec.yaml", "train.py", "--lr", "1"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})


def test_a_script_that_starts_itself_again_is_captured_there(tmp_path: Path) -> None:
    done = run(tmp_path, AGAIN)
    assert (done.returncode, done.stdout) == (0, "1 ['--lr', '1']\n")
    assert probes.open(tmp_path / "run")["a", ""].clocks["step"].tolist() == [0, 1, 2, 3]
    assert "captured" not in done.stderr.splitlines()[0]


def test_a_script_that_becomes_another_program_says_that_nothing_is_captured(tmp_path: Path) -> None:
    done = run(tmp_path, "import os; os.execlp('echo', 'echo', 'two words', 'more')")
    assert (done.returncode, done.stdout) == (0, "two words more\n")
    assert done.stderr.startswith("the program becomes another one, in which nothing is captured: ")
    assert done.stderr.endswith("/echo 'two words' more\n")
    assert done.stderr.count("\n") == 1


def test_a_command_with_probes_again_has_the_options_of_the_interpreter() -> None:
    python, other = sys.executable, "/usr/bin/env"
    script = Command((python, "-m", "probes", "run", "spec.yaml"), ("train.py",))
    assert script.again([python, "-W", "error", "-u", "train.py", "-m"]) == [
        python,
        "-W",
        "error",
        "-u",
        *script.before[1:],
        "train.py",
        "-m",
    ]
    assert script.again([python, "other.py"]) is None
    assert script.again([other, "train.py"]) is None
    assert script.again([python, "-m", "train"]) is None
    module = Command((python, "-m", "probes", "run", "spec.yaml"), ("-m", "train"))
    assert module.again([python, "-m", "train", "--lr"]) == [*module.before, "-m", "train", "--lr"]
    assert module.again([python, "-c", "train"]) is None


def test_a_program_that_leaves_by_os_exit_learns_how_to_seal_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    replaced = ReplacedProcess(None, lambda: True, said.append, lambda: [Path("/runs/a")])
    replaced.start()
    os._exit(3)
    replaced._pid += 1  # a forked child has no run
    os._exit(4)
    replaced.stop()
    os._exit(5)
    assert said == ["`os._exit` ends the program while its run is open: `probes recover /runs/a` seals it"]
    assert codes == [3, 4, 5]
