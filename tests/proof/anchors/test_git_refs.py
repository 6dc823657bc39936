"""Anchors in tags and notes of git, and what someone forges who can push to the repository."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proof.anchors.places import allowed, git, key, recorded, repository, said
from tests.proof.forger import other

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two commits and a run of each."""
    place = tmp_path_factory.mktemp("git")
    commit = repository(place / "repo")
    recorded(place / "one", "one", commit)
    git(place / "repo", "commit", "-q", "--allow-empty", "-m", "y")
    recorded(place / "two", "two", git(place / "repo", "rev-parse", "HEAD").strip(), change=other)
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place" / "repo")
    return tmp_path / "place"


def tag(run: str) -> str:
    (name,) = [one for one in git(Path.cwd(), "tag").split() if f"/{run}/" in one]
    return name


def test_a_tag_and_a_note_of_the_commit_of_the_code_are_anchors(place: Path) -> None:
    for option in ("--git", "--note"):
        assert said("anchor", "../one", option)[0] == 0
        assert said("verify", "../one", "--anchor", "git")[1].endswith("as anchored\n")
        assert said("verify", "../two", "--anchor", "git")[0] == 2, "that run has none"
    assert said("anchor", "../one", "--note")[0] == 0, "a note may say it twice"
    assert len(git(place / "repo", "notes", "--ref=probes", "show", "HEAD~1").split()) == 2


def _moved(place: Path) -> None:
    said("anchor", "../two", "--git")
    git(place / "repo", "tag", "-f", tag("one"), tag("two"))


def _rewritten(place: Path, **changes: object) -> None:
    name = tag("one")
    text = json.loads(git(place / "repo", "for-each-ref", "--format=%(contents:subject)", f"refs/tags/{name}"))
    git(place / "repo", "tag", "-f", "-a", "-m", json.dumps(text | changes), name)


def _of_the_forged_run(place: Path) -> None:
    """Replace the run, and anchor it again next to the first tag."""
    shutil.rmtree(place / "one")
    recorded(place / "one", "one", git(place / "repo", "rev-parse", "HEAD~1").strip(), change=other)
    assert said("anchor", "../one", "--git")[0] == 0


TAGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a tag that was moved to that of another run": (_moved, "not-an-anchor"),
    "a tag with another head": (lambda place: _rewritten(place, head="0" * 64), "not-an-anchor"),
    "a tag with the digits of its name and others": (
        lambda place: _rewritten(place, head=tag("one").rsplit("/")[-1] + "0" * 48),
        "ledger-rolled-back",
    ),
    "a tag with another run in it": (lambda place: _rewritten(place, run_id="two"), "not-an-anchor"),
    "a tag without a message": (lambda place: git(place / "repo", "tag", "-f", tag("one"), "HEAD"), "not-an-anchor"),
    "a second tag of a run that replaced the first": (_of_the_forged_run, "ledger-rolled-back"),
}


@pytest.mark.parametrize("name", TAGS)
def test_a_forged_tag_ends_with_1_and_its_code(place: Path, name: str) -> None:
    assert said("anchor", "../one", "--git")[0] == 0
    forge, code = TAGS[name]
    forge(place)
    ended, output = said("verify", "../one", "--anchor", "git")
    assert ended == 1, output
    assert f"error[{code}]" in output


def test_a_note_of_another_commit_does_not_count(place: Path) -> None:
    assert said("anchor", "../one", "--note")[0] == 0
    git(place / "repo", "notes", "--ref=probes", "copy", "HEAD~1", "HEAD")
    git(place / "repo", "notes", "--ref=probes", "remove", "HEAD~1")
    code, output = said("verify", "../one", "--anchor", "git")
    assert (code, "no note of it" in output) == (2, True)


def test_a_note_of_several_runs_and_a_note_that_is_not_an_anchor(place: Path) -> None:
    said("anchor", "../one", "--note")
    git(place / "repo", "notes", "--ref=probes", "append", "-m", '{"format":"anchor.v1","head":"' + "0" * 64 + '","run_id":"x"}', "HEAD~1")
    assert said("verify", "../one", "--anchor", "git")[0] == 0, "the line of another run is not of this one"
    git(place / "repo", "notes", "--ref=probes", "append", "-m", "seen by me", "HEAD~1")
    assert said("verify", "../one", "--anchor", "git")[0] == 1


def test_a_text_that_is_an_option_of_git_is_not_a_commit(place: Path) -> None:
    shutil.rmtree(place / "one")
    recorded(place / "one", "one", "--output=/dev/null")
    assert said("anchor", "../one", "--note")[0] == 2


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen comes with OpenSSH")
def test_a_signed_tag_names_who_signed_it_and_no_other_key_counts(place: Path) -> None:
    for name in ("ada", "eve"):
        key(place, name)
    signers = allowed(place, "ada")
    assert said("anchor", "../one", "--git", "--sign", place / "ada")[0] == 0
    assert said("verify", "../one", "--anchor", "git", "--signers", signers)[1].endswith("as anchored, signed by `ada`\n")
    assert said("anchor", "../two", "--git", "--sign", place / "eve")[0] == 0
    code, output = said("verify", "../two", "--anchor", "git", "--signers", signers)
    assert (code, "error[not-signed]" in output) == (1, True)
    git(place / "repo", "tag", "-d", tag("two"))
    assert said("anchor", "../two", "--git")[0] == 0
    assert said("verify", "../two", "--anchor", "git", "--signers", signers)[0] == 1, "not signed at all"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen comes with OpenSSH")
def test_a_key_that_cannot_sign_leaves_no_tag(place: Path) -> None:
    """Git reports the error of the key, makes a tag without a signature, and ends with 0."""
    (place / "repo" / "junk").write_text("no key\n")
    code, output = said("anchor", "../one", "--git", "--sign", "junk")
    assert (code, '"junk" cannot sign' in output) == (2, True), output
    assert git(place / "repo", "tag") == ""


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen comes with OpenSSH")
def test_a_key_is_named_relative_to_the_current_directory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "repo" / "below").mkdir()
    monkeypatch.chdir(place / "repo" / "below")
    key(Path.cwd(), "ada")
    assert said("anchor", "../../one", "--git", "--sign", "ada")[0] == 0
    signers = allowed(Path.cwd(), "ada")
    assert said("verify", "../../one", "--anchor", "git", "--signers", signers)[1].endswith("as anchored, signed by `ada`\n")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen comes with OpenSSH")
def test_a_signature_of_another_ref_with_the_same_short_name_does_not_count(place: Path) -> None:
    key(place, "ada")
    assert said("anchor", "../one", "--git", "--sign", place / "ada")[0] == 0
    signed = git(place / "repo", "rev-parse", f"refs/tags/{tag('one')}").strip()
    git(place / "repo", "tag", "-d", tag("one"))
    _of_the_forged_run(place)
    git(place / "repo", "update-ref", f"refs/{tag('one')}", signed)
    code, output = said("verify", "../one", "--anchor", "git", "--signers", allowed(place, "ada"))
    assert (code, "error[not-signed]" in output) == (1, True), output
