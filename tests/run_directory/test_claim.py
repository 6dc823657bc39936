"""Who may write to a run directory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from probes.errors import StorageError
from probes.run_directory.claim import Claim, claim_name, claim_of, claims, release, take


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def leave(directory: Path, **facts: object) -> None:
    note = {"pid": dead_pid(), "host": socket.gethostname(), "since": "2026-11-21T00:00:00Z", **facts}
    (directory / "claim.json").write_text(json.dumps(note))


def test_a_claim_names_its_process_and_goes_when_it_lets_go(tmp_path: Path) -> None:
    take(tmp_path, "r")
    claim = claim_of(tmp_path)
    assert claim is not None
    assert (claim.pid, claim.run_id, claim.state) == (os.getpid(), "r", "alive")
    release(tmp_path)
    assert claims(tmp_path) == {}


def test_a_second_claim_is_refused_with_the_first_ones_name(tmp_path: Path) -> None:
    take(tmp_path, "r")
    with pytest.raises(StorageError, match=f"is in use by pid {os.getpid()} on host"):
        take(tmp_path, "s")
    with pytest.raises(StorageError, match="is in use"):
        take(tmp_path, "s", take_over=True)


def test_what_a_dead_process_left_is_taken_over_only_when_asked(tmp_path: Path) -> None:
    leave(tmp_path)
    with pytest.raises(StorageError, match="which is dead: resume it with `--take-over`"):
        take(tmp_path, "r")
    take(tmp_path, "r", take_over=True)
    claim = claim_of(tmp_path)
    assert claim is not None
    assert claim.pid == os.getpid()


def test_a_process_of_another_boot_or_with_a_number_given_again_is_dead() -> None:
    host = socket.gethostname()
    assert Claim(os.getppid(), host, "").state == "alive"
    assert Claim(os.getppid(), host, "", boot_id="another").state == "dead"
    assert Claim(os.getppid(), host, "", started="1").state == "dead"


def test_another_machine_cannot_be_asked(tmp_path: Path) -> None:
    leave(tmp_path, host="elsewhere")
    with pytest.raises(StorageError, match="whose state is unknown on this host"):
        take(tmp_path, "r")
    take(tmp_path, "r", take_over=True)


def test_a_claim_that_was_never_finished_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "claim.json").write_text('{"pid":')
    assert claim_of(tmp_path) == Claim(0, "", "an unknown time")
    with pytest.raises(StorageError, match="a run that did not start"):
        take(tmp_path, "r")
    take(tmp_path, "r", take_over=True)


def test_every_rank_has_its_own(tmp_path: Path) -> None:
    take(tmp_path, "r", 0)
    take(tmp_path, "r", 1)
    assert sorted(claims(tmp_path)) == ["claim.rank-0000.json", "claim.rank-0001.json"] == [claim_name(0), claim_name(1)]


def test_a_claim_that_somebody_took_over_is_not_released(tmp_path: Path) -> None:
    leave(tmp_path)
    release(tmp_path)
    assert claim_of(tmp_path) is not None


def test_of_many_that_race_one_wins(tmp_path: Path) -> None:
    for index in range(30):
        place = tmp_path / str(index)
        place.mkdir()
        leave(place)
        won: list[int] = []

        def race(number: int, place: Path = place, won: list[int] = won) -> None:
            try:
                take(place, str(number), take_over=True)
            except StorageError:
                return
            won.append(number)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
