"""Completions of each word in shells: specs, codes, runs, series and module paths, without the modules of verbs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from probes.cli import cli
from probes.clock import SeriesKey
from probes.commands.completion.bash import BashWords
from probes.commands.completion.table import TABLE
from tests import regenerate
from tests.reader.recorded import Recording

HEAVY = ("torch", "numpy", "h5py", "pydantic", "yaml", "blake3")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, the second newer; the current directory is the one above `runs`."""
    for age, (name, targets) in enumerate({"old": ("fc",), "new": ("encoder.0", "encoder.1")}.items()):
        recording = Recording(tmp_path / "runs" / name)
        for target in targets:
            for phase in ("train", "eval"):
                recording.take(np.zeros(2, "<f4"), key=SeriesKey("acts", target, "output", phase))
        recording.sealed()
        os.utime(tmp_path / "runs" / name, (age, age))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COMP_LINE", line)
    return BashWords(cli, {}, "probes", "_PROBES_COMPLETE").complete().splitlines()


LINES = {
    "probes ver": ["plain,verify"],
    "probes ls --js": ["plain,--json"],
    "probes explain unknown-k": ["plain,unknown-key", "plain,unknown-kind"],
    "probes run preset:dead": ["plain,preset:dead-units", "file,preset:dead"],
    "probes check preset:upd": ["plain,preset:update-ratio", "file,preset:upd"],
    "probes run preset:dead-units tr": ["file,tr"],
    "probes ls ": ["plain,runs/new", "plain,runs/old"],
    "probes verify runs/o": ["plain,runs/old"],
    "probes verify runs/old/": ["plain,runs/old/epoch-0000.h5"],
    "probes verify nothing": ["dir,nothing"],
    "probes show runs/new acts/encoder.1": ["plain,acts/encoder.1:output", "plain,acts/encoder.1:output@eval"],
    "probes show runs/old ": ["plain,acts/fc:output", "plain,acts/fc:output@eval", "plain,acts/**"],
    "probes show runs acts/encoder.1:output@": ["plain,acts/encoder.1:output@eval"],
    "probes show nothing a": [],
    "probes export runs/old acts/fc:output acts/fc:output@": ["plain,acts/fc:output@eval"],
    "probes watch runs/old --series acts/fc:output@": ["plain,acts/fc:output@eval"],
    "probes diff runs/old runs/new --map f": ["plain,fc"],
    "probes diff runs/old runs/new --map fc=": ["plain,fc=encoder.0", "plain,fc=encoder.1"],
    "probes show --sort m": ["plain,max", "plain,min"],
    "probes demo m": ["plain,minilm"],
    "probes run --set a": [],
}


@pytest.mark.parametrize("line", LINES)
def test_a_word_may_become_an_existing_name(line: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = offered(line, monkeypatch)
    assert found == LINES[line] or (line.startswith(("probes explain", "probes show --sort")) and {*found} >= {*LINES[line][:1]})


def test_damaged_ledgers_and_names_that_move_a_cursor_offer_nothing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = runs / "runs" / "old" / "ledger.jsonl"
    row = (
        '{"series":[{"probe":"a","target":"x\\u001b[2J","leaf":"o","phase":"train"},{"probe":"b","target":"y","leaf":"o","phase":"train"}]}'
    )
    ledger.write_bytes(b'{"series":\n[1]\n{"series":[3]}\n\xff\n' + row.encode() + b"\n")
    assert offered("probes show runs/old ", monkeypatch) == ["plain,b/y:o", "plain,a/**", "plain,b/**"]


def test_the_table_is_that_of_the_verbs() -> None:
    assert TABLE.read_text(encoding="utf-8") == regenerate.completion_text(), f"run: {regenerate.COMMAND}"


def test_bash_replaces_only_the_text_after_a_colon_and_nothing_heavy_is_imported(runs: Path) -> None:
    program = runs / "bin" / "probes"
    program.parent.mkdir()
    checked = f"atexit.register(lambda: [print(name) for name in {HEAVY} if name in sys.modules])"
    code = f"import atexit, sys; {checked}; from probes.__main__ import main; main()"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    script = """
compopt() { :; }
eval "$(_PROBES_COMPLETE=bash_source probes)"
try() { COMP_LINE="$1"; COMP_POINT=${#1}; COMPREPLY=(); _probes_completion probes; printf '%s\\n' "$1 > ${COMPREPLY[*]}"; }
try 'probes show runs/new acts/encoder.0:ou'
try 'probes run preset:dead'
try 'probes diff runs/old runs/new --map fc=encoder.1'
COMP_WORDBREAKS=' '
try 'probes run preset:dead'
"""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("`bash` is not installed")
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "--norc", "-c", script], cwd=runs, env=environment, capture_output=True, text=True, check=False)
    assert [line.partition(" > ")[2] for line in done.stdout.splitlines()] == [
        "output output@eval",
        "dead-units",
        "encoder.1",
        "preset:dead-units",
    ], done.stderr
