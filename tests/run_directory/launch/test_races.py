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

import pytest

from probes.digest import canonical
from probes.run_directory.create import write_start
from probes.run_directory.file_name import manifest_name
from probes.run_directory.launch.join import Joined, Newcomer, join
from probes.run_directory.launch.launch_file import launch_digest, launches
from probes.run_directory.launch.launcher import Launcher
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
