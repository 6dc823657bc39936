"""Runs, keys and repositories for tests of anchors."""

from __future__ import annotations

import subprocess
from pathlib import Path

from click.testing import CliRunner

from probes.cli import cli
from probes.run_directory.manifest import GitRecord
from tests.proof.runs import Change, manifest, replaced, small, write_run


def said(*words: object) -> tuple[int, str]:
    """Exit code and output of a verb."""
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def recorded(path: Path, run_id: str = "r", commit: str = "", change: Change = lambda one, epoch: one) -> Path:
    """A run of two epochs."""
    state = GitRecord(commit=commit, branch=None, dirty=False, diff=None, untracked=()) if commit else None
    origin = replaced(manifest(), run_id=run_id)
    write_run(path, epochs=2, source=small, change=change, origin=replaced(origin, code=origin.code.model_copy(update={"git": state})))
    return path


def key(folder: Path, name: str) -> Path:
    """A private key of SSH; the public one is next to it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", name], cwd=folder, check=True)
    return folder / name


def allowed(folder: Path, *names: str, options: str = "") -> Path:
    """A list of keys that count."""
    path = folder / "allowed_signers"
    path.write_text("".join(f"{name} {options}{(folder / f'{name}.pub').read_text().rsplit(' ', 1)[0]}\n" for name in names))
    return path


def repository(folder: Path) -> str:
    """A git repository with one commit, whose hash is returned."""
    folder.mkdir()
    for words in (
        ["init", "-q"],
        ["config", "user.name", "n"],
        ["config", "user.email", "e"],
        ["commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", "-C", folder, *words], check=True)
    return git(folder, "rev-parse", "HEAD").strip()


def git(folder: Path, *words: str) -> str:
    """What a command of git prints."""
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout
