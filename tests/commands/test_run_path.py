"""The path of a run: the same mistake has the same exit code with every verb."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from probes.cli import cli
from tests.reader.recorded import Recording, counted

VERBS = {
    "ls": ["ls", "RUN"],
    "show": ["show", "RUN", "acts/fc1:output"],
    "export": ["export", "RUN"],
    "diff": ["diff", "RUN", "RUN"],
    "report": ["report", "RUN"],
    "watch": ["watch", "RUN", "--once"],
    "verify": ["verify", "RUN"],
    "anchor": ["anchor", "RUN"],
    "recover": ["recover", "RUN"],
    "upload": ["upload", "RUN", "file:///tmp/none"],
    "replay": ["replay", "RUN"],
}


def code(verb: str, run: object) -> int:
    return CliRunner().invoke(cli, [str(run) if word == "RUN" else word for word in VERBS[verb]]).exit_code


@pytest.mark.parametrize("verb", VERBS)
def test_a_path_without_a_run_has_one_exit_code(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert [code(verb, run) for run in (tmp_path / "none", tmp_path / "empty")] == [3, 3]
    assert code(verb, "") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.skipif(os.access("/root", os.R_OK) and os.geteuid() == 0, reason="this user may read every directory")
def test_a_directory_that_cannot_be_read_has_one_exit_code(verb: str, tmp_path: Path) -> None:
    counted(tmp_path / "run", 1)
    (tmp_path / "run").chmod(0)
    try:
        assert code(verb, tmp_path / "run") == 3
    finally:
        (tmp_path / "run").chmod(0o700)


def test_a_run_that_does_not_verify_is_a_negative_result_of_an_anchor(tmp_path: Path) -> None:
    counted(tmp_path, 1)
    Recording(tmp_path, 1).left()
    assert (code("verify", tmp_path), code("anchor", tmp_path)) == (1, 1)
