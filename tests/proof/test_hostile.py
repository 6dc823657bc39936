"""No malicious file makes a reading verb end in a bug, write outside of its files, or take long."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import time
from pathlib import Path

import pytest

from probes.cli import main
from tests.proof.hostile import mutate
from tests.proof.runs import captures, write_run

SHORT, LONG = 20, 20_000
VERBS = (
    ["ls", "run"],
    ["ls", "run", "--attempts"],
    ["show", "run", "acts/fc1"],
    ["verify", "run"],
    ["diff", "run", "good"],
    ["export", "run"],
    ["export", "run", "--manifest"],
    ["recover", "run"],
)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hostile") / "good"
    write_run(place, epochs=1, source=captures, gaps=True)
    write_run(place, epochs=2, first=1, source=captures, gaps=True, seals=False)
    return place


def ends(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code of a command line, and what it printed."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["probes", *words])
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    out.flush()
    buffer = out.buffer
    assert isinstance(buffer, io.BytesIO)
    return code, buffer.getvalue().decode()


def hostile(good: Path, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(good, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good").symlink_to(good)
    way = mutate(tmp_path / "run", seed)
    for words in VERBS:
        started = time.process_time()
        code, said = ends(words, monkeypatch)
        assert code in (0, 1, 2, 3), f"seed {seed} ({way}): {' '.join(words)}: {said}"
        assert "\x1b[2J" not in said
        assert time.process_time() - started < 5
    assert {path.name for path in tmp_path.iterdir()} == {"run", "good"}


@pytest.mark.parametrize("seed", range(SHORT))
def test_no_verb_that_reads_ends_in_a_bug(good: Path, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile(good, seed, tmp_path, monkeypatch)


@pytest.mark.torture
def test_no_verb_that_reads_ends_in_a_bug_in_the_long_run(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SHORT, SHORT + LONG):
        (tmp_path / str(seed)).mkdir()
        hostile(good, seed, tmp_path / str(seed), monkeypatch)
        shutil.rmtree(tmp_path / str(seed))
