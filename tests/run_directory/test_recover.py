"""Putting in order what a dead run has left behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from probes.cli import cli
from probes.commands.recover import recover as command
from probes.errors import StorageError
from probes.run_directory.ledger import Ledger
from probes.run_directory.recover import RecoveryFinding, recover
from probes.run_directory.seal import seal
from tests.run_directory.epochs import Shot, begin, fill, names, payloads, sealed, stored, write, zoo


def actions(directory: Path) -> dict[str, str]:
    return {finding.file: finding.action for finding in recover(directory).findings}


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def claim(directory: Path, pid: int, host: str = "") -> None:
    note = {"run_id": "r", "pid": pid, "host": host or socket.gethostname(), "since": "2026-11-21T00:00:00Z"}
    (directory / "claim.json").write_text(json.dumps(note))


def test_a_run_in_order_has_nothing_to_recover(tmp_path: Path) -> None:
    sealed(tmp_path, zoo())
    recovery = recover(tmp_path)
    assert (recovery.findings, recovery.damaged) == ((), False)
    assert recovery.heads == {"ledger.jsonl": Ledger(tmp_path / "ledger.jsonl").head}


def test_remaining_journals_are_sealed(tmp_path: Path) -> None:
    sealed(tmp_path, [Shot()])
    write(tmp_path, [Shot(step=0), Shot(step=1)], name="epoch-0004.journal", head={"epoch": 4})
    journal = begin(tmp_path, "epoch-0005.journal", {"epoch": 5})
    fill(journal, [Shot(), Shot(step=1)])
    journal.close()
    findings = recover(tmp_path).findings
    assert findings[0] == RecoveryFinding("epoch-0004.h5", "sealed", "", complete=True, captures=2)
    assert findings[1] == RecoveryFinding("epoch-0005.h5", "sealed", "the process ended before the epoch did", complete=False, captures=2)
    assert [entry.file for entry in Ledger(tmp_path / "ledger.jsonl").entries] == ["epoch-0003.h5", "epoch-0004.h5", "epoch-0005.h5"]
    assert stored(tmp_path / "epoch-0005.h5") == payloads([Shot(), Shot(step=1)])
    assert not recover(tmp_path).findings


def test_an_incomplete_attempt_does_not_supersede_a_complete_one(tmp_path: Path) -> None:
    sealed(tmp_path, [Shot()])
    journal = begin(tmp_path, "epoch-0003.a2.journal", {"attempt": 2})
    journal.commit("train", 0, 0)
    journal.close()
    assert actions(tmp_path) == {"epoch-0003.a2.h5": "sealed"}
    assert Ledger(tmp_path / "ledger.jsonl").entries[1].supersedes is None


def test_a_journal_whose_file_is_in_the_ledger_is_removed(tmp_path: Path) -> None:
    journal = write(tmp_path, zoo())
    content = journal.read_bytes()
    seal(journal, tmp_path)
    journal.write_bytes(content)
    assert actions(tmp_path) == {"epoch-0003.h5": "finished"}
    assert not journal.exists()
    assert len(Ledger(tmp_path / "ledger.jsonl").entries) == 1


def test_a_journal_that_was_only_begun_is_removed(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    journal.close()
    with journal.path.open("r+b") as file:
        file.truncate(100)
    assert actions(tmp_path) == {"epoch-0003.journal": "emptied"}
    assert names(tmp_path) == []


def test_half_a_file_without_a_journal_is_removed(tmp_path: Path) -> None:
    (tmp_path / "epoch-0003.h5.tmp").write_bytes(b"half")
    (tmp_path / "notes.h5.tmp").write_bytes(b"mine")
    assert actions(tmp_path) == {"epoch-0003.h5.tmp": "swept"}
    assert names(tmp_path) == ["notes.h5.tmp"]


def test_an_unlisted_file_is_reported_and_not_changed(tmp_path: Path) -> None:
    sealed(tmp_path, zoo())
    (tmp_path / "ledger.jsonl").unlink()
    recovery = recover(tmp_path)
    assert [(finding.file, finding.action) for finding in recovery.findings] == [("epoch-0003.h5", "unlisted")]
    assert recovery.damaged
    assert (tmp_path / "epoch-0003.h5").exists()


def test_a_removed_file_is_reported(tmp_path: Path) -> None:
    sealed(tmp_path, zoo()).unlink()
    assert actions(tmp_path) == {"epoch-0003.h5": "missing"}


def test_a_file_that_is_not_a_journal_is_reported_and_the_others_are_sealed(tmp_path: Path) -> None:
    (tmp_path / "epoch-0002.journal").write_bytes(b"not a journal at all" * 100)
    write(tmp_path, zoo())
    assert actions(tmp_path) == {"epoch-0002.journal": "refused", "epoch-0003.h5": "sealed"}
    assert (tmp_path / "epoch-0002.journal").exists()


def test_a_live_run_is_not_recovered(tmp_path: Path) -> None:
    journal = write(tmp_path, zoo())
    claim(tmp_path, os.getpid())
    with pytest.raises(StorageError, match=r"is in use by pid \d+ on host .* since 2026-11-21T00:00:00Z, which is this process"):
        recover(tmp_path)
    assert journal.exists()


def test_a_run_on_another_machine_is_not_recovered_unless_taken_over(tmp_path: Path) -> None:
    write(tmp_path, zoo())
    claim(tmp_path, dead_pid(), "elsewhere")
    with pytest.raises(StorageError, match="--take-over"):
        recover(tmp_path)
    assert recover(tmp_path, take_over=True).findings[0].action == "sealed"


def test_the_claim_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    write(tmp_path, zoo())
    claim(tmp_path, dead_pid())
    assert actions(tmp_path) == {"epoch-0003.h5": "sealed"}
    assert names(tmp_path) == ["epoch-0003.h5", "ledger.jsonl"]


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a directory"):
        recover(tmp_path / "nowhere")


def test_the_command_prints_its_result(tmp_path: Path) -> None:
    write(tmp_path, [Shot()])
    done = CliRunner().invoke(command, [str(tmp_path)])
    assert done.exit_code == 0
    assert "sealed    epoch-0003.h5  1 capture, complete" in done.output
    assert f"ledger.jsonl: head {Ledger(tmp_path / 'ledger.jsonl').head}" in done.output
    assert "nothing to recover" in CliRunner().invoke(command, [str(tmp_path)]).output


def test_the_command_ends_with_1_where_something_is_damaged(tmp_path: Path) -> None:
    sealed(tmp_path, [Shot()]).unlink()
    done = CliRunner().invoke(command, [str(tmp_path), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.output)["findings"][0]["action"] == "missing"


def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal of a machine that is not this one, with a step that proves itself and one that does not."""
    journal = begin(tmp_path)
    fill(journal, [Shot(), Shot(step=1, shape=(50_000,))])
    journal.close()
    monkeypatch.setattr("probes.journal.scan.boot_id", lambda: "another")
    return journal.path


def test_a_journal_of_another_machine_with_unproven_steps_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = elsewhere(tmp_path, monkeypatch)
    content = journal.read_bytes()
    (finding,) = recover(tmp_path).findings
    assert (finding.file, finding.action, recover(tmp_path).damaged) == (journal.name, "kept", False)
    assert "1 step without proof that all bytes came to the device" in finding.message
    assert "--unproven include" in finding.message
    assert journal.read_bytes() == content
    done = CliRunner().invoke(command, [str(tmp_path), "--unproven", "include"])
    assert "sealed    epoch-0003.h5  2 captures" in done.output
    assert names(tmp_path) == ["epoch-0003.h5", "ledger.jsonl"]


def test_excluded_steps_remain_in_a_file_of_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = elsewhere(tmp_path, monkeypatch)
    content = journal.read_bytes()
    done = CliRunner().invoke(command, [str(tmp_path), "--unproven", "exclude"])
    assert "sealed    epoch-0003.h5  1 capture, incomplete: 1 step without proof" in done.output
    assert "kept      epoch-0003.journal.kept" in done.output
    assert (tmp_path / "epoch-0003.journal.kept").read_bytes() == content
    assert not recover(tmp_path).findings


def test_small_captures_are_proven_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = begin(tmp_path)
    fill(journal, [Shot(), Shot(step=1)])
    journal.close()
    monkeypatch.setattr("probes.journal.scan.boot_id", lambda: "another")
    assert actions(tmp_path) == {"epoch-0003.h5": "sealed"}
    assert stored(tmp_path / "epoch-0003.h5") == payloads([Shot(), Shot(step=1)])


def test_a_damaged_step_affects_no_other_step_and_its_journal_is_kept(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    shots = [Shot(step=step, data=bytes([step + 1]) * 24) for step in range(3)]
    fill(journal, shots)
    journal.close()
    raw = bytearray(journal.path.read_bytes())
    raw[raw.find(shots[1].payload)] ^= 1
    journal.path.write_bytes(raw)
    assert actions(tmp_path) == {"epoch-0003.h5": "sealed", "epoch-0003.journal.kept": "kept"}
    assert stored(tmp_path / "epoch-0003.h5") == payloads([shots[0], shots[2]])


def test_a_file_that_has_less_than_its_journal_does_not_remove_it(tmp_path: Path) -> None:
    journal = write(tmp_path, [Shot(), Shot(step=1)])
    with pytest.raises(StorageError, match="holds 2 of the 3 captures that were committed; it is kept"):
        seal(journal, tmp_path, {"captures": 3})
    assert names(tmp_path) == [journal.name]


def test_other_models_that_a_killed_script_left_next_to_the_run_are_recovered_too(tmp_path: Path) -> None:
    for name in ("run", "run.candidate-2", "run2.candidate-2"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, [Shot()])
    done = CliRunner().invoke(command, [str(tmp_path / "run")])
    assert f'"{tmp_path / "run.candidate-2"}", another model of the same script:\nsealed    epoch-0003.h5' in done.output
    assert names(tmp_path / "run.candidate-2") == ["epoch-0003.h5", "ledger.jsonl"]
    assert names(tmp_path / "run2.candidate-2") == ["epoch-0003.journal"]


def test_a_start_that_was_killed_before_its_manifest_was_there_is_swept(tmp_path: Path) -> None:
    note = {"run_id": "r", "pid": dead_pid(), "host": socket.gethostname(), "since": "2026-11-21T00:00:00Z", "proof": "lock"}
    (tmp_path / "claim.json").write_text(json.dumps({**note, "files": ["spec.yaml", "run.json"]}))
    for name in ("spec.yaml", "run.json.12-0123abcd.tmp", "mine.yaml"):
        (tmp_path / name).write_text("version: 1\n")
    assert actions(tmp_path) == {"run.json.12-0123abcd.tmp": "swept", "spec.yaml": "swept"}
    assert names(tmp_path) == ["mine.yaml"]


def test_spare_journals_are_swept_and_files_of_other_names_are_kept(tmp_path: Path) -> None:
    sealed(tmp_path, zoo())
    for name in ("spare.journal", "spare.rank-0012.journal", "spare.mine.journal"):
        (tmp_path / name).write_bytes(b"a former journal")
    before = set(names(tmp_path))
    assert actions(tmp_path) == {"spare.journal": "swept", "spare.rank-0012.journal": "swept"}
    assert before - set(names(tmp_path)) == {"spare.journal", "spare.rank-0012.journal"}


def a_link(path: Path) -> None:
    path.symlink_to("elsewhere")


def unreadable(path: Path) -> None:
    path.write_bytes(b"x")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")


@pytest.mark.parametrize("made", [a_link, Path.mkdir, os.mkfifo, unreadable])
def test_a_journal_that_cannot_be_opened_is_refused_and_the_others_are_sealed(made: Callable[[Path], None], tmp_path: Path) -> None:
    made(tmp_path / "epoch-0002.journal")
    write(tmp_path, [Shot()], name="epoch-0003.journal")
    recovery = recover(tmp_path)
    assert {one.file: one.action for one in recovery.findings} == {"epoch-0002.journal": "refused", "epoch-0003.h5": "sealed"}
    assert recovery.damaged


def test_an_unfinished_file_that_cannot_be_removed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "epoch-0002.h5.tmp").mkdir()
    write(tmp_path, [Shot()], name="epoch-0003.journal")
    assert actions(tmp_path) == {"epoch-0002.h5.tmp": "refused", "epoch-0003.h5": "sealed"}


def said(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["recover", *map(str, words)])
    return done.exit_code, done.output


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    assert said(tmp_path)[0] == 3
    assert "holds no run" in said(tmp_path)[1]
    assert names(tmp_path) == []
    assert said(tmp_path / "none")[0] == 3
    assert said("") == (2, said("")[1])
    assert "the path is empty" in said("")[1]


def test_all_runs_below_a_directory_are_recovered(tmp_path: Path) -> None:
    for name in ("a/1", "a/1.candidate-2", "b"):
        (tmp_path / name).mkdir(parents=True)
        write(tmp_path / name, [Shot()])
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "ledger.jsonl").write_text("damaged\n")
    code, text = said(tmp_path)
    assert code == 1
    assert [line for line in text.splitlines() if line.startswith('"')] == [
        f'"{tmp_path / name}":' for name in ("a/1", "a/1.candidate-2", "b", "c")
    ]
    assert text.count("sealed    epoch-0003.h5") == 3
    assert "refused   .  error[" in text
    found = json.loads(said(tmp_path, "--json")[1])
    assert [Path(one["run"]).name for one in found["runs"]] == ["1", "1.candidate-2", "b", "c"]
