"""The process that may write to a run directory, on file systems with locks and without."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.errors import StorageError
from probes.run_directory.owner import claim as claim_file
from probes.run_directory.owner import heartbeat, ownership
from probes.run_directory.owner.claim import Claim, FoundClaim, claim_name, claims
from probes.run_directory.owner.ownership import Ownership, in_use, own

HOLDER = """
import sys, time
from pathlib import Path
from probes.run_directory.owner.ownership import own

owned = own(Path(sys.argv[1]), "r")
print("owned", flush=True)
sys.stdin.read()
"""


def claim_of(directory: Path) -> FoundClaim | None:
    """The claim on a directory that is not of one rank."""
    return next((found for found in reversed(claims(directory)) if found.rank is None), None)


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def leave(directory: Path, **facts: object) -> Path:
    note = {"pid": dead_pid(), "host": socket.gethostname(), "since": "2026-11-21T00:00:00Z", **facts}
    path = directory / "claim.json"
    path.write_text(json.dumps(note))
    return path


def life(directory: Path) -> str:
    found = claim_of(directory)
    assert found is not None
    return found.life


def holder(directory: Path, *before: str) -> subprocess.Popen[str]:
    """A process of its own that owns a directory until its stdin closes."""
    words = [*before, sys.executable, "-c", HOLDER, str(directory)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "owned\n"
    return process


@pytest.fixture
def lockless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file system without locks, and hearts that beat fast."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(claim_file, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(claim_file, "PATIENCE", 2.0)
    yield
    for owned in tuple(ownership._OWNED):
        owned.close()


def test_a_claim_names_its_process_and_is_removed_at_its_release(tmp_path: Path) -> None:
    owned = own(tmp_path, "r")
    found = claim_of(tmp_path)
    assert found is not None
    assert (found.claim.pid, found.claim.run_id, found.life, owned.held) == (os.getpid(), "r", "alive", True)
    owned.release()
    owned.release()
    assert (claims(tmp_path), owned.held, list(tmp_path.iterdir())) == ([], False, [])


def test_a_second_owner_is_refused_with_the_first_ones_name(tmp_path: Path) -> None:
    owned = own(tmp_path, "r")
    for take_over in (False, True):
        with pytest.raises(StorageError, match=f"is in use by pid {os.getpid()} on host .* which is this process: end it with `run.close"):
            own(tmp_path, "s", take_over=take_over)
    place = tmp_path / "other"
    place.mkdir()
    with holder(place) as process:
        with pytest.raises(StorageError, match=f"is in use by pid {process.pid} on host"):
            own(place, "s", take_over=True)
        process.communicate("")
    owned.release()


def test_a_refusal_names_the_rank_and_the_options_of_the_second_process(tmp_path: Path) -> None:
    held = FoundClaim(tmp_path / "claim.rank-0003.json", 3, 1, Claim(7, "node1", "2026-11-21T00:00:00Z"))
    assert "by rank 3, pid 7 on host node1 since 2026-11-21T00:00:00Z; wait for its end, or end it" in in_use(tmp_path, held, "recover")
    assert "choose another directory" in in_use(tmp_path, held, "write")
    assert "choose another directory" not in in_use(tmp_path, held, "recover"), "`recover` has no other directory"


def test_the_directory_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
    owned = own(tmp_path, "r")
    assert [(found.claim.pid, found.generation) for found in claims(tmp_path)] == [(os.getpid(), 2)]
    owned.release()
    assert claims(tmp_path) == []


def test_a_child_that_shares_the_claim_holds_it_and_recovery_waits_for_the_child(tmp_path: Path) -> None:
    """As the sealer does that a killed training leaves behind."""
    program = (
        "import os, subprocess, sys; from pathlib import Path; from probes.run_directory.owner.ownership import own\n"
        "owned = own(Path(sys.argv[1]), 'r')\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1)'], pass_fds=owned.shared); os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert life(tmp_path) == "alive"
    began = time.monotonic()
    own(tmp_path, "r").release()
    assert 0.2 < time.monotonic() - began < 20


def test_a_forked_child_does_not_keep_the_claim(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; from pathlib import Path; from probes.run_directory.owner.ownership import own\n"
        "owned = own(Path(sys.argv[1]), 'r')\n"
        "if os.fork() == 0:\n"
        "    assert not owned.held\n"
        "    os.close(1); time.sleep(20); os._exit(0)\n"
        "time.sleep(0.3); os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert life(tmp_path) == "dead"


def test_a_process_in_another_pid_namespace_of_the_same_host_name_counts_as_running(tmp_path: Path) -> None:
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs namespaces")
    with holder(tmp_path, *words) as process:
        found = claim_of(tmp_path)
        assert found is not None
        assert (found.claim.host, found.claim.is_near, found.life) == (socket.gethostname(), False, "alive")
        with pytest.raises(StorageError, match="is in use by pid"):
            own(tmp_path, "", task="recover", take_over=True)
        process.communicate("")
    own(tmp_path, "", task="recover").release()


def test_ranks_of_a_run_do_not_exclude_each_other_and_the_whole_excludes_all(tmp_path: Path) -> None:
    ranks = [own(tmp_path, "r", 0), own(tmp_path, "r", 1)]
    assert [found.path.name for found in claims(tmp_path)] == ["claim.rank-0000.json", "claim.rank-0001.json"]
    for run_id, rank in (("r", 1), ("other", 2), ("", None)):
        with pytest.raises(StorageError, match="is in use"):
            own(tmp_path, run_id, rank)
    for owned in ranks:
        owned.release()
    whole = own(tmp_path, "", task="recover")
    with pytest.raises(StorageError, match=r"probes recover.*which is this process"):
        own(tmp_path, "r", 1)
    whole.release()
    assert claim_name(3) == "claim.rank-0003.json"


def test_a_claim_that_cannot_be_read_has_no_owner(tmp_path: Path) -> None:
    (tmp_path / "claim.json").write_text('{"pid":')
    assert claim_of(tmp_path) == FoundClaim(tmp_path / "claim.json", None, 1, Claim(0, "", "an unknown time"))
    own(tmp_path, "r").release()


def test_notes_of_earlier_releases_are_checked_by_their_process(tmp_path: Path) -> None:
    leave(tmp_path, pid=os.getppid())
    assert life(tmp_path) == "alive"
    for facts in ({}, {"pid": os.getppid(), "started": "1"}, {"boot_id": "another"}):
        leave(tmp_path, **facts)
        assert life(tmp_path) == "dead"
    leave(tmp_path, host="elsewhere")
    with pytest.raises(StorageError, match="it is not known whether that process still runs: if it does not, use `--take-over`"):
        own(tmp_path, "r")
    own(tmp_path, "r", take_over=True).release()


def test_a_free_lock_proves_nothing_of_another_machine_unless_the_disk_is_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, host="elsewhere", boot_id="another", proof="lock")
    assert life(tmp_path) == "dead"
    monkeypatch.setattr(claim_file, "is_local", lambda directory: False)
    assert life(tmp_path) == "unknown"


@pytest.mark.usefixtures("lockless")
def test_without_locks_the_owner_writes_a_heartbeat_until_it_ends(tmp_path: Path) -> None:
    owned = own(tmp_path, "r")
    assert owned.claim.proof == "heartbeat"
    time.sleep(2.5)
    with pytest.raises(StorageError, match="is in use"):
        own(tmp_path, "s", take_over=True)
    owned.close()
    deadline = time.monotonic() + 10
    while (tmp_path / "claim.json").stat().st_mtime and time.monotonic() < deadline:
        time.sleep(0.02)
    assert life(tmp_path) == "dead", "the heart says so itself, and nobody has to wait"
    own(tmp_path, "s").release()


@pytest.mark.usefixtures("lockless")
def test_without_locks_a_killed_owner_is_detected_after_a_while(tmp_path: Path) -> None:
    path = leave(tmp_path, host="elsewhere", boot_id="another", proof="heartbeat")
    assert life(tmp_path) == "alive"
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    assert life(tmp_path) == "dead"


@pytest.mark.usefixtures("lockless")
def test_a_clock_change_does_not_end_a_live_heartbeat(tmp_path: Path) -> None:
    path = leave(tmp_path, host="elsewhere", boot_id="another", proof="heartbeat")
    stop = threading.Event()

    def beat() -> None:
        times = iter(range(1, 10_000))
        while not stop.wait(0.05):
            os.utime(path, (next(times), next(times)))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        time.sleep(0.2)
        assert life(tmp_path) == "alive"
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("locks", [True, False])
def test_one_of_many_processes_takes_over_the_directory_of_an_ended_process(
    tmp_path: Path, locks: bool, request: pytest.FixtureRequest
) -> None:
    if not locks:
        request.getfixturevalue("lockless")
    for index in range(10):
        place = tmp_path / str(index)
        place.mkdir()
        os.utime(leave(place, proof="lock" if locks else "heartbeat"), (1, 0 if not locks else 1))
        won: list[Ownership] = []

        def race(number: int, place: Path = place, won: list[Ownership] = won) -> None:
            try:
                won.append(own(place, str(number)))
            except StorageError:
                return

        threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert [found.path for found in claims(place)] == [won[0].path]
        won[0].release()


def test_a_run_on_a_file_system_without_locks_is_sealed_and_read(tmp_path: Path) -> None:
    """The HDF5 library has locks of its own."""
    from tests.torture import shim

    if shim.compiler() is None:
        pytest.skip("needs a C compiler")
    program = (
        "import sys; from pathlib import Path; import probes; from tests.run_directory.epochs import sealed, Shot\n"
        "from probes.run_directory.recover import recover\n"
        "run = Path(sys.argv[1]); sealed(run, [Shot()]); assert not recover(run).damaged\n"
        "print(len(probes.open(run).series), [one.code for one in probes.verify(run).findings if one.code == 'damaged'])\n"
    )
    place = tmp_path / "run"
    place.mkdir()
    about = {**os.environ, "LD_PRELOAD": str(shim.build(tmp_path)), "TORTURE_NO_LOCKS": "1"}
    done = subprocess.run([sys.executable, "-c", program, str(place)], env=about, capture_output=True, text=True, check=False)
    assert done.stdout == "1 []\n", done.stderr


@pytest.mark.parametrize("note", [b"[" * 100_000, b'{"pid": 1e400, "host": "", "since": ""}', b"null", b'{"pid":' + b"9" * 5000 + b"}"])
def test_a_claim_that_no_process_wrote_has_no_owner(note: bytes, tmp_path: Path) -> None:
    (tmp_path / "claim.json").write_bytes(note)
    assert [found.claim.pid for found in claims(tmp_path)] == [0]


def test_a_claim_that_is_a_pipe_or_has_no_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "claim.json")
    (tmp_path / "claim.2.json").symlink_to("/dev/zero")
    assert [(found.claim.pid, found.life) for found in claims(tmp_path)]


def test_a_heartbeat_continues_after_a_failure_of_the_disk(tmp_path: Path) -> None:
    program = """
import os, sys, time
from probes.run_directory.owner import heartbeat
times = []
def utime(claim, when=None):
    times.append(when)
    if len(times) == 1:
        raise OSError(5, "Input/output error")
    print(when, flush=True)
os.utime = utime
heartbeat.main(sys.argv[1], 0.01)
"""
    path = tmp_path / "claim.json"
    path.touch()
    with subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "None\n"
        child.stdin.close()
        assert child.stdout.read().endswith("(0, 0)\n")
    assert child.returncode == 0
