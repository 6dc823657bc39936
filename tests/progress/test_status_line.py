"""A line at the end of a real terminal, next to programs that print in their own ways; a small screen says what a person sees."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import sys
from probes.progress.status_line import StatusLine

line = StatusLine(sys.stderr, (sys.stdout,))
def work(name, n=3):
    for step in range(n):
        line.show(f"{name} step {step}")

with line:
    before = sys.stdout, sys.stderr
    work("first")
    %s
    work("last")
assert (sys.stdout, sys.stderr) == before and not {"write", "flush"} & {*vars(sys.stdout), *vars(sys.stderr), *vars(sys.stdout.buffer)}
print("end")
"""


def screen(output: str, width: int = 60) -> list[str]:
    """The lines that a terminal shows after an output: carriage returns, new lines, cursor up, and erased lines."""
    lines, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[\d*[A-Za-z]|.", output, flags=re.DOTALL):
        if token == "\r":
            column = 0
        elif token == "\n":
            row, lines = row + 1, [*lines, *[""] * (row + 2 - len(lines))]
        elif token == "\x1b[A":
            row -= 1
        elif token == "\x1b[2K":
            lines[row] = ""
        elif token == "\x1b[J":
            lines[row:] = [lines[row][:column], *[""] * (len(lines) - row - 1)]
        else:
            assert len(token) == 1, f"unknown sequence {token!r}"
            lines[row] = lines[row].ljust(column)[:column] + token + lines[row][column + 1 :]
            column += 1
            assert column <= width, "a line is wider than the terminal"
    return [line.rstrip() for line in lines if line.strip()]


def shown(words: list[str], folder: Path, width: int = 60, typed: bytes = b"", **environ: str) -> str:
    """Run a command with a terminal for all its streams; returns what it wrote there."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    modes = termios.tcgetattr(theirs)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, modes)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | environ
    with subprocess.Popen(words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True) as process:
        os.close(theirs)
        os.write(ours, typed)
        found = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    assert process.returncode == 0, found.decode()
    return found.decode().replace("\r\n", "\n" + "\r")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: nobody has the other end any more
        return b""


PRINTS: dict[str, tuple[str, list[str]]] = {
    "a print": ("print('loss 1.7447')", ["loss 1.7447"]),
    "a print in parts": ("print('loading', end=' '); work('hidden'); print('done')", ["loading done"]),
    "a flushed part": ("print('loading', end=' ', flush=True); work('hidden'); print('done')", ["loading done"]),
    "bytes": ("sys.stdout.buffer.write(b'loss 1.7447\\n'); sys.stdout.buffer.flush()", ["loss 1.7447"]),
    "bytes in parts": (
        "out = sys.stdout.buffer; out.write(b'load'); out.flush(); work('hidden'); out.write(b'ed\\n'); out.flush()",
        ["loaded"],
    ),
    "bytes behind a text": (
        "print('part', end=' ', flush=True); sys.stdout.buffer.write(b'rest\\n'); sys.stdout.flush(); print('on')",
        ["part rest", "on"],
    ),
    "a log": ("import logging; logging.warning('slow')", ["WARNING:root:slow"]),
    "lines at once": ("sys.stdout.writelines(['one\\n', 'two\\n'])", ["one", "two"]),
    "a question": ("answer = input('name? '); print(answer)", ["name? Ada"]),
    "a warning": ("import warnings; warnings.showwarning('odd', UserWarning, 'x.py', 1, line='')", ["x.py:1: UserWarning: odd"]),
    "a bar": (
        "from tqdm import tqdm\n    for i in tqdm(range(3), mininterval=0, ascii=True, bar_format='{n}/3'): work('hidden')",
        ["3/3"],
    ),
    "a bar that prints": (
        "from tqdm import tqdm\n    for i in tqdm(range(2), mininterval=0, bar_format='{n}/2'):\n"
        "        work('hidden'); tqdm.write(f'at {i}')",
        ["at 0", "at 1", "2/2"],
    ),
    "a bar next to lines of ours": (
        "from tqdm import tqdm\n    for i in tqdm(range(2), mininterval=0, bar_format='{n}/2'): line.say(f'ours {i}')",
        ["0/2", "ours 0", "1/2", "ours 1", "2/2"],
    ),
    "a part next to lines of ours": (
        "print('part', end='', flush=True); line.say('ours'); work('first'); print('rest')",
        ["part", "ours", "rest"],
    ),
    "two bars": (
        "from tqdm import tqdm\n    for i in tqdm(range(2), mininterval=0, bar_format='outer {n}/2'):\n"
        "        for j in tqdm(range(2), mininterval=0, position=1, leave=False, bar_format='inner {n}/2'): work('hidden')",
        ["outer 2/2"],
    ),
}


@pytest.mark.parametrize("name", PRINTS)
def test_output_of_a_program_stays_whole_next_to_the_status_line(name: str, tmp_path: Path) -> None:
    if "tqdm" in PRINTS[name][0]:
        pytest.importorskip("tqdm")
    text, lines = PRINTS[name]
    output = shown([sys.executable, "-c", PROGRAM % text], tmp_path, typed=b"Ada\n")
    assert "first step 2" in output
    assert "hidden" not in output
    assert screen(output) == [*lines, "end"]


def test_a_line_wider_than_the_terminal_is_cut(tmp_path: Path) -> None:
    program = "import sys\nfrom probes.progress.status_line import StatusLine\nwith StatusLine(sys.stderr) as line: line.show('x' * 100)"
    assert screen(shown([sys.executable, "-c", program], tmp_path, width=20), width=20) == []


def test_a_stream_that_a_program_replaced_is_not_restored(tmp_path: Path) -> None:
    from probes.progress.status_line import StatusLine
    from tests.script.test_progress import Terminal

    def own(text: str) -> int:
        return len(text)

    stream: Any = Terminal()
    with StatusLine(stream) as line:
        line.show("step 0")
        stream.write = own
    assert stream.write is own
    assert "flush" not in vars(stream)
