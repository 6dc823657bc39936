"""The child that seals, seen from the training process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from probes.run_directory.ledger import Ledger
from probes.run_directory.owner.ownership import own
from probes.run_directory.resume import previous_attempts
from probes.run_directory.sealer_process import SealerProcess
from tests.processes.running import until_gone
from tests.run_directory.epochs import Shot, payloads, stored, write


@pytest.fixture
def sealer(tmp_path: Path) -> Iterator[SealerProcess]:
    made = SealerProcess(tmp_path)
    yield made
    made.drain(20)


def epoch(directory: Path, number: int, size: int = 6) -> Path:
    return write(directory, [Shot(shape=(size,))], name=f"epoch-{number:04d}.journal", head={"epoch": number})


def child(sealer: SealerProcess) -> int:
    assert sealer._child is not None
    return sealer._child.pid


def test_epochs_are_sealed_in_another_process_during_training(tmp_path: Path, sealer: SealerProcess) -> None:
    found = []
    for number in range(5):
        sealer.submit(epoch(tmp_path, number))
        found += sealer.poll()
    found += sealer.drain()
    assert [one.epoch for one in found] == [0, 1, 2, 3, 4]
    assert sealer.failures == []
    assert sealer.waited_seconds > 0
    assert Ledger(tmp_path / "ledger.jsonl").head == found[-1].head
    assert stored(tmp_path / "epoch-0004.h5") == payloads([Shot(shape=(6,))])


def test_no_child_is_started_for_a_run_without_epochs(tmp_path: Path) -> None:
    sealer = SealerProcess(tmp_path)
    assert sealer.poll() == sealer.drain() == []
    assert sealer._child is None


def test_one_child_seals_everything_and_then_ends(tmp_path: Path, sealer: SealerProcess) -> None:
    sealer.submit(epoch(tmp_path, 0))
    first = child(sealer)
    sealer.submit(epoch(tmp_path, 1))
    assert child(sealer) == first
    sealer.drain()
    until_gone(first)


def test_a_child_that_is_killed_is_started_again_and_nothing_is_lost(tmp_path: Path, sealer: SealerProcess) -> None:
    sealer.submit(epoch(tmp_path, 0))
    os.kill(child(sealer), signal.SIGKILL)
    sealer.submit(epoch(tmp_path, 1))
    found = sealer.drain()
    assert [one.epoch for one in found] == [0, 1]
    assert sealer.failures == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-0000.h5", "epoch-0001.h5", "ledger.jsonl"]
    assert [entry.epoch for entry in Ledger(tmp_path / "ledger.jsonl").entries] == [0, 1]


def test_a_journal_that_kills_the_child_twice_is_reported_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "sitecustomize.py").write_text("import os, sys\nif '-c' in sys.argv[:1]: os._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(trap))
    sealer = SealerProcess(tmp_path)
    journal = epoch(tmp_path, 0)
    sealer.submit(journal)
    assert sealer.drain(20) == []
    (failure,) = sealer.failures
    assert failure.journal == journal.name
    assert "ended twice on this journal; its last words: none, as after a kill" in failure.message
    assert journal.exists()


def test_a_journal_that_cannot_be_sealed_does_not_stop_the_next(tmp_path: Path, sealer: SealerProcess) -> None:
    bad = tmp_path / "epoch-0000.journal"
    bad.write_bytes(b"no journal" * 1000)
    sealer.submit(bad)
    sealer.submit(epoch(tmp_path, 1))
    assert [one.epoch for one in sealer.drain()] == [1]
    assert [failure.journal for failure in sealer.failures] == [bad.name]
    assert "not-a-journal" in sealer.failures[0].message


def test_an_unknown_compression_is_a_failure_and_not_a_crash(tmp_path: Path, sealer: SealerProcess) -> None:
    sealer.submit(epoch(tmp_path, 0), {"compression": "lzma"})
    assert sealer.drain() == []
    assert 'lzma" is not a known compression' in sealer.failures[0].message


def test_the_wait_for_a_child_that_hangs_has_a_limit(tmp_path: Path, sealer: SealerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.run_directory.sealer_process.PATIENCE", 0.2)
    monkeypatch.setattr("probes.run_directory.sealer_process.LOOK_SECONDS", 0.1)
    sealer.submit(epoch(tmp_path, 0))
    stopped = child(sealer)
    os.kill(stopped, signal.SIGSTOP)
    monkeypatch.setattr("probes.run_directory.sealer_process.HOLD_SECONDS", 0.2)
    for number in range(1, 5):
        sealer.submit(epoch(tmp_path, number))
    assert sealer.waited_seconds < 30, "the training goes on, and what it ends waits"
    assert sealer.drain() == []
    assert [failure.journal for failure in sealer.failures] == [f"epoch-{number:04d}.journal" for number in range(5)]
    assert {failure.message for failure in sealer.failures} == {"the sealer made no progress for 0.2 seconds"}
    os.kill(stopped, signal.SIGCONT)
    until_gone(stopped)
    assert not (tmp_path / "epoch-0001.journal").exists()


def test_a_stopped_child_does_not_delay_the_exit(tmp_path: Path, sealer: SealerProcess) -> None:
    sealer.submit(epoch(tmp_path, 0))
    stopped = child(sealer)
    os.kill(stopped, signal.SIGSTOP)
    began = monotonic()
    assert sealer.poll() == []
    assert sealer.drain(0.2) == []
    assert monotonic() - began < 30
    assert "the sealer continues" in sealer.failures[0].message
    os.kill(stopped, signal.SIGCONT)
    deadline = monotonic() + 120
    while (tmp_path / "epoch-0000.journal").exists() and monotonic() < deadline:
        sleep(0.02)
    assert stored(tmp_path / "epoch-0000.h5") == payloads([Shot(shape=(6,))])
    until_gone(stopped)


def test_the_journal_of_a_run_that_replaced_another_is_not_touched(tmp_path: Path, sealer: SealerProcess) -> None:
    sealer.submit(epoch(tmp_path, 0), {"run_id": "the run before"})
    assert sealer.drain() == []
    assert "belongs to another run" in sealer.failures[0].message
    assert (tmp_path / "epoch-0000.journal").exists()


def test_an_interrupt_does_not_reach_the_child(tmp_path: Path, sealer: SealerProcess) -> None:
    sealer.submit(epoch(tmp_path, 0))
    sealer.submit(epoch(tmp_path, 1))
    while not sealer.poll():
        sleep(0.01)
    os.kill(child(sealer), signal.SIGINT)
    assert os.getpgid(child(sealer)) != os.getpgid(0)
    sealer.drain()
    assert sealer.failures == []


def test_a_fork_of_the_training_process_does_not_affect_the_sealer(tmp_path: Path, sealer: SealerProcess) -> None:
    sealer.submit(epoch(tmp_path, 0))
    sealer._process = -1
    assert sealer.poll() == sealer.drain() == []
    sealer.submit(epoch(tmp_path, 1))
    sealer._process = os.getpid()
    assert [one.epoch for one in sealer.drain()] == [0]


SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from probes.run_directory.sealer_process import SealerProcess
os.chdir(sys.argv[3])
sys.path[:] = []
sealer = SealerProcess(Path(sys.argv[1]))
sealer.submit(Path(sys.argv[1]) / "epoch-0000.journal")
if sys.argv[4] == "die":
    os.kill(os.getpid(), 9)
if sys.argv[4] == "drain":
    assert sealer.drain(), sealer.failures
"""


@pytest.mark.parametrize("end", ["drain", "leave", "die"])
def test_the_sealer_finishes_when_the_script_changes_its_paths_or_ends_in_any_way(tmp_path: Path, end: str) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    for shadow in ("json.py", "numpy.py", "probes.py"):
        (elsewhere / shadow).write_text("raise SystemExit('shadowed')\n")
    journal = epoch(run, 0)
    package = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", SCRIPT, run, package, elsewhere, end], check=False, timeout=120, stderr=subprocess.PIPE)
    assert done.returncode == (-signal.SIGKILL if end == "die" else 0), done.stderr
    deadline = monotonic() + 120
    while journal.exists() and monotonic() < deadline:
        sleep(0.02)
    assert stored(run / "epoch-0000.h5") == payloads([Shot(shape=(6,))])


def test_a_program_that_is_being_ended_waits_for_nothing(tmp_path: Path, sealer: SealerProcess) -> None:
    sealer.submit(epoch(tmp_path, 0))
    os.kill(child(sealer), signal.SIGSTOP)
    sealer.hurry()
    began = monotonic()
    for number in range(1, 5):
        sealer.submit(epoch(tmp_path, number))
    assert monotonic() - began < 30
    os.kill(child(sealer), signal.SIGCONT)
    assert [one.epoch for one in sealer.drain()] == [0, 1, 2, 3, 4]


def test_more_open_files_than_select_knows_do_not_matter(tmp_path: Path, sealer: SealerProcess) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 2000:
        pytest.skip("needs 2000 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, before[1]))
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        sealer.submit(epoch(tmp_path, 0))
        assert [one.epoch for one in sealer.drain()] == [0]
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_removed_directory_for_temporary_files_does_not_matter(
    tmp_path: Path, sealer: SealerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", gone)
    sealer.submit(epoch(tmp_path, 0))
    assert [one.epoch for one in sealer.drain()] == [0]


def test_a_child_that_cannot_be_started_is_tried_again_with_the_next_epoch_and_at_the_end(
    tmp_path: Path, sealer: SealerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as without:
        without.setattr(subprocess, "Popen", refuse)
        for number in range(4):
            sealer.submit(epoch(tmp_path, number))
        assert sealer.waited_seconds < 10
    assert [one.epoch for one in sealer.drain()] == [0, 1, 2, 3]
    with monkeypatch.context() as without:
        without.setattr(subprocess, "Popen", refuse)
        sealer.submit(epoch(tmp_path, 4))
        sealer.submit(damaged(tmp_path, 5))
        assert [one.epoch for one in sealer.drain()] == [4]
    (failure,) = sealer.failures
    assert failure.message.startswith("the sealer cannot be started: Too many open files, and here: ")
    assert (tmp_path / "epoch-0005.journal").exists()


def damaged(directory: Path, number: int) -> Path:
    journal = epoch(directory, number)
    journal.write_bytes(b"no journal")
    return journal


@pytest.mark.parametrize("executable", [None, "", "/usr/bin/uwsgi", "/nonexistent/python3"])
def test_a_program_without_an_interpreter_seals_at_its_end_and_is_not_started_again(
    tmp_path: Path, sealer: SealerProcess, monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "exec_prefix", str(tmp_path))
    sealer.submit(epoch(tmp_path, 0))
    assert sealer._child is None
    assert [one.epoch for one in sealer.drain()] == [0]
    assert sealer.failures == []


@pytest.mark.usefixtures("greeting")
def test_the_greeting_of_an_interpreter_is_not_taken_for_an_answer(tmp_path: Path, sealer: SealerProcess) -> None:
    sealer.submit(epoch(tmp_path, 0))
    assert [one.epoch for one in sealer.drain()] == [0]
    owned = own(tmp_path, "run")
    try:
        assert previous_attempts(owned).attempt == 1
    finally:
        owned.release()


def test_a_file_that_holds_less_than_was_committed_is_a_failure(tmp_path: Path, sealer: SealerProcess) -> None:
    sealer.submit(epoch(tmp_path, 0), {"captures": 2})
    assert sealer.drain() == []
    assert "holds 1 of the 2 captures that were committed; it is kept" in sealer.failures[0].message
