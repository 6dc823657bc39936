from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from probes.commands.anchor import anchor
from probes.commands.verify import verify
from tests.proof.runs import small, write_run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_run(tmp_path / "run", epochs=2, source=small)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(verb: object, *words: str) -> Result:
    return CliRunner().invoke(verb, words)  # type: ignore[arg-type]  # click commands have no common type


def test_an_anchor_in_a_file_is_found_by_verify(place: Path) -> None:
    made = said(anchor, "run", "--file", "kept.json")
    assert made.exit_code == 0, made.output
    assert json.loads((place / "kept.json").read_text()) == json.loads(made.stdout)
    assert json.loads(made.stdout)["files"] == 2
    assert said(verify, "run", "--anchor", "kept.json").output.endswith("as anchored\n")
    write_run(place / "run", epochs=1, source=small, attempt=2)
    assert said(verify, "run", "--anchor", "kept.json").exit_code == 1


def test_an_anchor_is_never_replaced_or_kept_in_the_run_or_made_of_a_damaged_run(place: Path) -> None:
    (place / "kept.json").write_text("mine")
    assert "exists already" in str(said(anchor, "run", "--file", "kept.json").exception)
    assert "is in the run directory" in str(said(anchor, "run", "--file", "run/kept.json").exception)
    (place / "run" / "epoch-0000.h5").write_bytes(b"")
    assert "does not verify" in str(said(anchor, "run").exception)


def test_one_file_is_not_anchored_because_the_anchor_would_be_of_files_that_nobody_checked(place: Path) -> None:
    (place / "run" / "epoch-0000.h5").write_bytes(b"")
    refused = said(anchor, "run/epoch-0001.h5", "--file", "run/kept.json")
    assert str(refused.exception) == '"run/epoch-0001.h5" is a file; an anchor is of a whole run, so name the run directory, "run"'
    assert not (place / "run" / "kept.json").exists()


def test_an_anchor_in_a_git_tag_is_found_by_verify(place: Path) -> None:
    (place / "repo").mkdir()
    for words in (["init", "-q"], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", "-C", "repo", *words], check=True)
    subprocess.run(["git", "-C", "repo", "config", "user.name", "n"], check=True)
    subprocess.run(["git", "-C", "repo", "config", "user.email", "e"], check=True)
    with pytest.MonkeyPatch.context() as inside:
        inside.chdir(place / "repo")
        assert "has no tag" in str(said(verify, "../run", "--anchor", "git").exception)
        made = said(anchor, "../run", "--git")
        assert "anchored in the tag `probes/r/" in made.output, (made.output, made.exception)
        assert said(verify, "../run", "--anchor", "git").output.endswith("as anchored\n")
        inside.chdir(place / "run")
        assert "git is never run in a run directory" in str(said(verify, ".", "--anchor", "git").exception)


@pytest.mark.parametrize("text", ["", "x", "[]", '{"format":"anchor.v1"}', '{"format":"anchor.v2","head":"' + "0" * 64 + '"}'])
def test_a_file_that_is_not_an_anchor_is_refused(place: Path, text: str) -> None:
    (place / "kept.json").write_text(text)
    assert "not-an-anchor" in str(said(verify, "run", "--anchor", "kept.json").exception)
