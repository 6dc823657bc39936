"""What started a process: the same on every rank of a start, and of no other start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import probes
from probes.run_directory.launch.join import Newcomer, join
from probes.run_directory.launch.launch_file import launches
from probes.run_directory.launch.launcher import STARTED_BY, Launcher, launcher, started_by
from tests.run_directory.launch.test_join import PROGRAM

NAMES = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def of(monkeypatch: pytest.MonkeyPatch, parent: str = "1", world: int = 4, **variables: str) -> Launcher:
    """What a rank finds whose parent and environment are given."""
    with monkeypatch.context() as only:
        for name, value in variables.items():
            only.setenv(name, value)
        only.setattr("probes.run_directory.launch.launcher._parent", lambda: [parent])
        return launcher(world)


def test_a_restart_of_torchrun_is_of_the_same_job_and_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    first = of(monkeypatch, TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="0")
    again = of(monkeypatch, TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="1")
    assert first.job == again.job
    assert first.token != again.token
    assert (first.restart, again.restart) == (0, 1)
    assert of(monkeypatch, TORCHELASTIC_RUN_ID="b").job != first.job
    assert of(monkeypatch, world=3, TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="0").token != first.token


def test_nodes_agree_by_the_id_of_the_launcher_or_by_where_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in (
        {"TORCHELASTIC_RUN_ID": "a", "LOCAL_WORLD_SIZE": "2"},
        {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "1"},
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
        {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"},
    ):
        one, other = (of(monkeypatch, parent, **known) for parent in ("1", "2"))
        assert one.token == other.token, known
        assert one.job == other.job, known


def test_a_rank_that_another_rank_starts_is_of_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    first = launcher(2)
    about = {**os.environ, STARTED_BY: started_by()}
    code = "from probes.run_directory.launch.launcher import launcher; print(launcher(2).token)"
    for env, same in ((about, True), ({**about, STARTED_BY: "1 1 1 1"}, False), ({**about, STARTED_BY: ""}, False)):
        done = subprocess.run([sys.executable, "-c", code], env=env, cwd=Path.cwd(), capture_output=True, text=True, check=True)
        assert (done.stdout.strip() == first.token) == same, env[STARTED_BY]


def test_launches_of_one_machine_without_an_id_are_distinguished_by_their_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    assert of(monkeypatch, "1", **known).token != of(monkeypatch, "2", **known).token
    assert of(monkeypatch, "1", **known) == of(monkeypatch, "1", **known)


def test_only_new_processes_are_a_restart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = of(monkeypatch, TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="0")
    one = Newcomer(tmp_path, "run", first, 4, 0)
    joined = join(one)
    joined.owned.release()
    assert first.began > 0
    assert not one.is_restarted(joined.record), "a program that attaches a second time"
    later = first._replace(began=joined.record.ticks + 1)
    assert replace(one, launcher=later).is_restarted(joined.record), "torchrun counts no restart if its nodes change"
    assert not replace(one, launcher=later._replace(agent="other")).is_restarted(joined.record), "a second command"
    counted = first._replace(restart=1, agent="other")
    assert replace(one, launcher=counted).is_restarted(joined.record)
    assert not replace(one, launcher=counted._replace(id="b", name="torchrun")).is_restarted(joined.record), "another job"


def test_one_process_of_a_slurm_job_is_not_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(monkeypatch, world=1, SLURM_JOB_ID="7").id == ""
    assert of(monkeypatch, world=1, TORCHELASTIC_RUN_ID="a").id == "a", "torchrun may start it again"


@pytest.mark.torture
def test_ranks_of_two_hosts_with_a_shared_directory_are_one_run(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--uts", "true"], check=False).returncode:
        pytest.skip("this process may not give itself another host name")
    about = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "OMP_NUM_THREADS": "1"}
    ranks = []
    for rank in range(2):
        words = ["unshare", "--uts", "sh", "-c", f'hostname node{rank}; "$0" "$@"; exit $?', sys.executable, "-c", PROGRAM]
        ranks.append(subprocess.Popen([*words, str(tmp_path / "r"), "2", "", "all"], env={**about, "RANK": str(rank)}))
    assert [rank.wait() for rank in ranks] == [0, 0]
    assert probes.verify(tmp_path / "r").ok
    assert probes.open(tmp_path / "r").state == {0: "complete", 1: "complete"}
    assert launches(tmp_path / "r")[1].world == 2
