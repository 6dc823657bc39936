"""Typical mistakes of a first day: the answer says what was found, and what to type."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from probes.cli import cli
from tests.reader.recorded import counted

MISTAKES = {
    "the script before the spec": (["check", "train.py"], '"train.py" is a Python file, and the spec comes first'),
    "no series": (["show", "run"], "name a series: `probes ls run` lists them"),
    "an epoch that the run does not have": (["show", "run", "acts/fc1", "--epoch", "7"], "no capture in this selection (epoch 7)"),
    "a phase that the run does not have": (["show", "run", "acts/fc1", "--phase", "eval"], "no capture in this selection (phase eval)"),
    "a format with a typing error": (["export", "run", "-o", "out.parqet"], '"out.parqet" names no format; give `--format`'),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_the_next_command(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted(tmp_path / "run", epochs=1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")
    words, answer = MISTAKES[mistake]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert answer in done.stderr
    assert not (tmp_path / "out.parqet").exists()
