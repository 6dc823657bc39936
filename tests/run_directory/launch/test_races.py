"""Ranks that start at the same instant, or are killed while they start: they agree, or the next start does."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from probes.digest import canonical
from probes.run_directory.create import write_start
from probes.run_directory.file_name import manifest_name, temporary_name
from probes.run_directory.launch.join import Joined, Newcomer, join
from probes.run_directory.launch.launch_file import launch_digest, launches
from probes.run_directory.launch.launcher import Launcher
from probes.run_directory.owner import ownership
from tests.conftest import SEED


def newcomer(directory: Path, rank: int, world: int, restart: int = 0) -> Newcomer:
    by = Launcher("torchrun", "job", restart, "agent", 0, f"token-{restart}-{world}")
    return Newcomer(directory, "launch-1", by, world, rank)


def start(directory: Path, rank: int, world: int, restart: int = 0) -> Joined:
    """Join, and write the manifest, which is the end of a start."""
    found = join(newcomer(directory, rank, world, restart))
    files = {manifest_name(found.record.attempt, rank): canonical({"launch": launch_digest(directory, found.record.attempt)})}
    write_start(found.owned, files, again=found.record.attempt > 1)
    return found


def forked(work: Callable[[], object]) -> int:
    """Do something in a child, which then holds what it has until it is killed or ends."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # a child of a test must not go on as the test
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def ended(pids: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def hold(directory: Path, rank: int, world: int, restart: int) -> None:
    start(directory, rank, world, restart)
    time.sleep(9)


def leave_word(directory: Path, rank: int, world: int, restart: int = 0) -> None:
    found = start(directory, rank, world, restart)
    directory.with_name(f"{directory.name}-{rank}").write_text(f"{found.record.attempt} {found.record.token}")
    found.owned.release()


@pytest.mark.parametrize("times", [3, pytest.param(60, marks=pytest.mark.torture)])
def test_ranks_that_start_at_the_same_instant_agree(times: int, tmp_path: Path) -> None:
    for number in range(times):
        directory = tmp_path / str(number)
        assert ended([forked(partial(leave_word, directory, rank, 6)) for rank in range(6)]) == [0] * 6
        assert {path.read_text() for path in tmp_path.glob(f"{number}-*")} == {"1 token-0-6"}
        assert [*launches(directory)] == [1]
        assert not [path.name for path in directory.iterdir() if path.name.startswith("claim") or path.suffix == ".tmp"]


def test_a_rank_that_ends_the_claim_of_a_killed_start_keeps_the_files_of_a_faster_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = forked(partial(_killed_in_its_start, tmp_path))
    assert ended([pid]) == [-signal.SIGKILL]
    looked, kept, swept = ownership._others, list[ownership.Ownership](), list[str]()

    def slowly(directory: Path, run_id: str, rank: int | None) -> Any:
        found = looked(directory, run_id, rank)
        if rank == 2 and not kept:
            kept.append(ownership.own(directory, run_id, 0))
            swept.extend(kept[0].sweep())
            for name in ("spec.yaml", temporary_name(manifest_name(1, 0))):  # in the middle of its start
                (directory / name).write_bytes(b"version: 1")
        return found

    monkeypatch.setattr(ownership, "_others", slowly)
    slower = ownership.own(tmp_path, "launch-1", 2)
    assert len(swept) == 1
    assert manifest_name(1, 0) in slower.claim.files
    before = sorted(path.name for path in tmp_path.iterdir())
    assert slower.sweep() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    slower.release()
    assert len([path for path in tmp_path.iterdir() if path.name.startswith(("spec", "run"))]) == 2
    kept[0].release()


def _killed_in_its_start(directory: Path) -> None:
    owned = ownership.own(directory, "launch-1", task="start")
    owned.declare(("spec.yaml", manifest_name(1, 0)))
    (directory / temporary_name("spec.yaml")).write_bytes(b"ver")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.torture
def test_a_launch_that_is_killed_while_it_starts_can_be_started_again(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    for number in range(20):
        directory = tmp_path / str(number)
        for restart in range(3):
            world = chance.choice((2, 3, 4))
            pids = [forked(partial(hold, directory, rank, world, restart)) for rank in range(world)]
            time.sleep(chance.choice((0.0, 0.002, 0.005, 0.01, 0.03, 0.3)))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            assert set(ended(pids)) <= {-signal.SIGKILL}
        assert ended([forked(partial(leave_word, directory, rank, 3, 3)) for rank in range(3)]) == [0, 0, 0]
        last = max(launches(directory).values(), key=lambda one: one.attempt)
        assert (last.world, last.token) == (3, "token-3-3")
        assert {path.read_text() for path in tmp_path.glob(f"{number}-*")} == {f"{last.attempt} token-3-3"}
        assert all((directory / manifest_name(last.attempt, rank)).exists() for rank in range(3))
