"""Signed statements, and what someone forges who cannot sign with a key that counts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from probes.proof.anchors import ssh_signature
from tests.proof.anchors.places import allowed, key, recorded, said
from tests.proof.forger import attempt, other

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen comes with OpenSSH")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, each with a statement that ada has signed."""
    place = tmp_path_factory.mktemp("signed")
    for name in ("ada", "eve"):
        key(place, name)
    allowed(place, "ada")
    for name in ("one", "two"):
        recorded(place / name, name)
        code, output = said("anchor", place / name, "--file", place / f"{name}.json", "--sign", place / "ada")
        assert code == 0, output
        assert f'signed in "{place / name}.json.sig"' in output
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "place"))


def verified(place: Path, *more: object) -> tuple[int, str]:
    return said("verify", place / "one", "--anchor", place / "one.json", "--signers", place / "allowed_signers", *more)


def test_the_verdict_names_who_signed_the_anchor(place: Path) -> None:
    code, output = verified(place)
    assert (code, output.splitlines()[-1].rsplit(", ", 2)[1:]) == (0, ["as anchored", "signed by `ada`"])
    assert '"signed_by": [\n    "ada"\n  ]' in verified(place, "--json")[1]
    assert "signed by" not in said("verify", place / "one", "--anchor", place / "one.json")[1], "nobody asked whose it is"


def _signed_by_eve(place: Path, *, listed: bool = False) -> None:
    if listed:
        allowed(place, "ada", "eve", options='namespaces="git" ')
    (place / "one.json.sig").unlink()
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", place / "eve", "-n", "probes", place / "one.json"], check=True, capture_output=True
    )


def _signed_for(place: Path, namespace: str) -> None:
    (place / "one.json.sig").unlink()
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", place / "ada", "-n", namespace, place / "one.json"], check=True, capture_output=True
    )


def _of_the_other_run(place: Path) -> None:
    for suffix in ("", ".sig"):
        shutil.copy(place / f"two.json{suffix}", place / f"one.json{suffix}")


def _linked(place: Path) -> None:
    (place / "one.json.sig").rename(place / "kept.sig")
    (place / "one.json.sig").symlink_to(place / "kept.sig")


def _replaced_whole(run: Path) -> None:
    shutil.rmtree(run)
    recorded(run, "one", change=other)


def _edited(place: Path, old: str, new: str) -> None:
    text = (place / "one.json").read_text()
    assert old in text
    (place / "one.json").write_text(text.replace(old, new))


FORGERIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a signature by another key": (_signed_by_eve, "not-signed"),
    "a signature for another purpose": (lambda place: _signed_for(place, "git"), "not-signed"),
    "no signature": (lambda place: (place / "one.json.sig").unlink(), "not-signed"),
    "an empty signature": (lambda place: (place / "one.json.sig").write_bytes(b""), "not-signed"),
    "the signature of another statement": (lambda place: shutil.copy(place / "two.json.sig", place / "one.json.sig"), "not-signed"),
    "a statement of another run with its signature": (_of_the_other_run, "not-an-anchor"),
    "a statement with another run in it": (lambda place: _edited(place, '"run_id": "one"', '"run_id": "two"'), "not-signed"),
    "a statement with one space more": (lambda place: _edited(place, '"run_id": ', '"run_id":  '), "not-signed"),
    "a signature that is a link": (_linked, "not-regular"),
    "a signature of many megabytes": (lambda place: (place / "one.json.sig").write_bytes(bytes(1 << 20)), "oversized"),
    "a key that is in the list for another name and purpose": (
        lambda place: _signed_by_eve(place, listed=True),
        "not-signed",
    ),
    "a key whose time is over": (lambda place: allowed(place, "ada", options='valid-before="20200101" '), "not-signed"),
    "a run that was forged as a whole": (
        lambda place: _replaced_whole(place / "one"),
        "ledger-rolled-back",
    ),
    "a later attempt": (lambda place: attempt(place / "one"), "anchor-replaced"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_ends_with_1_and_its_code(place: Path, name: str) -> None:
    forge, code = FORGERIES[name]
    forge(place)
    ended, output = verified(place)
    assert ended == 1, output
    assert f"error[{code}]" in output
    assert "as anchored" not in output


def test_a_list_of_signers_in_the_run_directory_is_refused(place: Path) -> None:
    shutil.copy(place / "allowed_signers", place / "one" / "allowed_signers")
    code, output = said("verify", place / "one", "--anchor", place / "one.json", "--signers", place / "one" / "allowed_signers")
    assert (code, "is in the run directory" in output) == (2, True)


@pytest.mark.parametrize("words", [[], ["--anchor", "0" * 64], ["--anchor", "mlflow:x"]])
def test_an_anchor_that_cannot_be_signed_is_refused_with_signers(place: Path, words: list[str]) -> None:
    assert said("verify", place / "one", *words, "--signers", place / "allowed_signers")[0] == 2


def test_a_key_that_cannot_sign_leaves_no_statement(place: Path) -> None:
    code, output = said("anchor", place / "one", "--file", place / "new.json", "--sign", place / "one.json")
    assert (code, "cannot sign" in output) == (2, True)
    assert not (place / "new.json").exists()
    assert said("anchor", place / "one", "--sign", place / "ada")[0] == 2


def test_a_key_that_nobody_unlocks_leaves_no_statement(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = place / "bin" / "ssh-keygen"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 30\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setattr(ssh_signature, "SECONDS", 0.1)
    code, output = said("anchor", place / "one", "--file", place / "new.json", "--sign", place / "ada")
    assert (code, "`ssh-keygen` did not end" in output) == (2, True)
    assert not (place / "new.json").exists()
