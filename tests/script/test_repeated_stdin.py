"""One standard input for several programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from probes.script.repeated_stdin import RepeatedStdin
stdin = RepeatedStdin()
echo = [sys.executable, "-c", "import sys; print(sum(len(line) for line in sys.stdin))"]
deaf = [sys.executable, "-c", "print('read nothing')"]
first = [sys.executable, "-c", "import sys; print(sys.stdin.readline())"]
print([stdin.run(command)[1].strip() for command in WHICH])
"""


def run(which: str, **options: object) -> str:
    code = PROGRAM.replace("WHICH", which)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, **options)  # type: ignore[call-overload]  # options of the test
    return str(done.stdout.strip())


def test_every_program_reads_all_of_it(tmp_path: Path) -> None:
    lines = "a line\n" * 40_000
    assert run("[echo, deaf, echo]", input=lines) == f"['{len(lines)}', 'read nothing', '{len(lines)}']"
    (tmp_path / "input").write_text(lines)
    with (tmp_path / "input").open() as file:
        assert run("[echo, echo]", stdin=file) == f"['{len(lines)}', '{len(lines)}']"


def test_programs_without_stdin_read_nothing() -> None:
    assert run("[echo, echo]", stdin=subprocess.DEVNULL) == "['0', '0']"


def test_a_program_that_reads_little_does_not_wait_for_an_input_that_stays_open() -> None:
    ours, theirs = os.pipe()
    try:
        os.write(theirs, b"one\n")
        assert run("[deaf, first, first]", stdin=ours) == "['read nothing', 'one', 'one']"
    finally:
        os.close(ours)
        os.close(theirs)
