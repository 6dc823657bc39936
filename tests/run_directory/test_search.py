from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import probes
from probes.cli import cli
from probes.errors import StorageError
from probes.run_directory.search import begun, is_run, meant_run
from tests.reader.recorded import counted


def made(path: Path, started: str, run_id: str = "r") -> Path:
    """A run with a first manifest."""
    counted(path, 1)
    (path / "run.json").write_text(json.dumps({"started": started, "run_id": run_id}))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Runs `runs/NAME/RUN-ID`; that which was begun last is neither the last by name nor the last by its directory's time."""
    old = made(tmp_path / "runs" / "zeta" / "b", "2026-11-20T10:00:00+00:00")
    made(tmp_path / "runs" / "alpha" / "a", "2026-11-21T10:00:00+00:00")
    made(tmp_path / "runs" / "middle" / "c", "2026-11-19T10:00:00+00:00")
    os.utime(old, (4e9, 4e9))
    return tmp_path / "runs"


def test_the_newest_run_was_begun_last_at_any_depth(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert probes.open(runs).path == runs / "alpha" / "a"
    assert capsys.readouterr().err == f"reading the newest run, {runs / 'alpha' / 'a'}\n"
    made(runs / "alpha" / "z", "2026-11-21T10:00:00+00:00", "s")
    assert meant_run(runs) == runs / "alpha" / "z"


def test_a_later_attempt_does_not_make_a_run_newer(runs: Path) -> None:
    later = {"started": "2027-01-01T00:00:00+00:00", "run_id": "r"}
    (runs / "zeta" / "b" / "run.a2.json").write_text(json.dumps(later))
    assert meant_run(runs) == runs / "alpha" / "a"


VERBS: dict[str, Callable[[Path, Path], list[str]]] = {
    "ls": lambda runs, out: ["ls", str(runs)],
    "show": lambda runs, out: ["show", str(runs), "acts/fc1:output"],
    "export": lambda runs, out: ["export", str(runs), "acts/fc1:output", "-o", str(out / "a.npz")],
    "diff": lambda runs, out: ["diff", str(runs), str(runs / "alpha" / "a")],
    "watch": lambda runs, out: ["watch", str(runs), "--once"],
    "report": lambda runs, out: ["report", str(runs), "-o", str(out / "page.html")],
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_reads_the_same_run_of_a_directory_of_runs(verb: str, runs: Path, tmp_path: Path) -> None:
    for name in ("zeta/b", "middle/c"):
        (runs / name / "epoch-0000.h5").write_bytes(b"damaged, and not opened")
    done = CliRunner().invoke(cli, VERBS[verb](runs, tmp_path))
    assert done.exit_code <= (verb == "report"), done.output  # the manifest made here does not verify
    assert str(runs / "alpha" / "a") in done.output


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"started": 1, "run_id": "r"}', '{"started": "2026", "run_id": null}'])
def test_a_run_without_a_readable_manifest_counts_by_its_directory(text: str, runs: Path) -> None:
    for name, seconds in {"alpha/b": 0.0, "alpha/0": 4e9}.items():
        (made(runs / name, "") / "run.json").write_text(text)
        os.utime(runs / name, (seconds, seconds))
    assert meant_run(runs) == runs / "alpha" / "0"
    assert begun(runs / "alpha" / "b")[:2] == ("1970-01-01T00:00:00+00:00", "b")


def test_a_directory_without_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(StorageError, match="holds no run"):
        meant_run(tmp_path)
    with pytest.raises(StorageError, match="does not exist"):
        meant_run(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="neither a directory nor a regular file"):
        meant_run(tmp_path / "pipe")


def test_links_to_runs_count_and_checkpoints_and_weights_of_others_do_not(runs: Path, tmp_path: Path) -> None:
    made(tmp_path / "scratch" / "x", "2026-11-22T10:00:00+00:00")
    (runs / "linked").symlink_to(tmp_path / "scratch" / "x", target_is_directory=True)
    for name in ("checkpoints/epoch-0003.pt", "keras/epoch-0003.h5"):
        (runs / name).parent.mkdir()
        (runs / name).write_bytes(b"of another program")
        os.utime((runs / name).parent, (4e9, 4e9))
    assert meant_run(runs) == runs / "linked"
    (runs / "linked").unlink()
    assert meant_run(runs) == runs / "alpha" / "a"
    assert not is_run(runs / "checkpoints")
    with pytest.raises(StorageError, match="holds no run"):
        meant_run(runs / "checkpoints")


def test_a_directory_that_cannot_be_searched_is_named_and_hides_no_other_run(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "lost+found").mkdir()
    listed = Path.iterdir

    def denied(path: Path) -> Iterator[Path]:
        if path.name == "lost+found":  # the superuser, as whom tests may run, can read every directory
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", denied)
    assert probes.open(runs).path == runs / "alpha" / "a"
    assert 'lost+found" cannot be searched for runs: Permission denied' in capsys.readouterr().err
    with pytest.raises(StorageError, match="cannot be searched"):
        meant_run(runs / "lost+found")
    with pytest.raises(StorageError, match="cannot be searched"):
        probes.verify(runs)
