"""A program that begins in a fork ends like one in a new interpreter: the same words, in the same order, and the same exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import programs

BEFORE = """
import atexit, os, sys, threading, time, weakref

class Last:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print(self.name, "goes")

atexit.register(print, "exit function")
in_main, in_circle = Last("global"), Last("circle")
in_circle.own = in_circle
file = open("left.txt", "w")
file.write("never closed")
watched = Last("watched")
weakref.finalize(watched, print, "finalizer")

threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
print("main")
"""
ENDINGS = {
    "end": "",
    "code": "sys.exit(7)",
    "none": "sys.exit()",
    "large": "sys.exit(300)",
    "negative": "sys.exit(-1)",
    "text": "sys.exit('because')",
    "error": "raise KeyError('mine')",
    "interrupt": "raise KeyboardInterrupt",
    "function": "atexit.register(lambda: 1 / 0)",
    "closed": "os.close(1)",
    "at once": "os._exit(3)",
}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_program_in_a_fork_ends_like_one_in_a_new_interpreter(tmp_path: Path, how: str) -> None:
    program = BEFORE + ENDINGS[how]
    real, fork = tmp_path / "real", tmp_path / "fork"
    for folder in (real, fork):
        folder.mkdir()
    expected = subprocess.run([sys.executable, "-c", program], cwd=real, capture_output=True, text=True, check=False)
    found = programs.run("-c", program, cwd=fork)
    assert (found.returncode, sorted(found.stdout.split("\n"))) == (expected.returncode, sorted(expected.stdout.split("\n")))
    assert found.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]
    assert (fork / "left.txt").read_text() == (real / "left.txt").read_text()
