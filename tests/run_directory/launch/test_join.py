"""Ranks that come to one run by files alone: one attempt and one first epoch for all, whoever is killed, and whatever the world is next."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import probes
from probes.run_directory.launch.launch_file import launches
from probes.run_directory.recover import recover
from tests.warm import programs

PROGRAM = """
import os, signal, sys
import torch
from torch import nn
import probes

rank, out, epochs, kill, ranks, *more = int(os.environ["RANK"]), *sys.argv[1:]
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
when = {"when": {"ranks": {"at": [int(ranks)]}}} if ranks != "all" else {}
spec = {"version": 1, "name": "r", "probes": {"p": {"modules": ["0"], "values": ["output"], **when}}}
with probes.attach(model, spec, out=out, resume="resume" in more) as run:
    for epoch in run.epochs(int(epochs)):
        for step, x in enumerate(run.steps([torch.ones(3, 4)] * 3)):
            model(x)
            if kill == f"{epoch}.{step}.{rank}":
                os.kill(os.getpid(), signal.SIGKILL)
if run.of_all_ranks is not None:
    print("for all:", run.of_all_ranks.head, run.of_all_ranks.rows[0].captures)
"""


def launch(
    out: Path, epochs: int, *more: str, world: int = 2, restart: int = 0, kill: str = "", ranks: str = "all", job: str = "job-1"
) -> list[CompletedProcess[str]]:
    """Start the ranks of a launch, which do not wait for each other, and let them end."""
    about = {**os.environ, "WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": job, "TORCHELASTIC_RESTART_COUNT": str(restart)}
    with ThreadPoolExecutor(world) as pool:
        found = [
            pool.submit(programs.run, "-c", PROGRAM, out, str(epochs), kill, ranks, *more, env={**about, "RANK": str(rank)})
            for rank in range(world)
        ]
        return [rank.result() for rank in found]


def counted(out: Path) -> dict[int, dict[int, int]]:
    """Captures by epoch and rank, as the run is read."""
    clocks = probes.open(out)["p", "0"].clocks
    found: dict[int, dict[int, int]] = {}
    for epoch, rank in zip(clocks["epoch"].tolist(), clocks["rank"].tolist(), strict=True):
        found.setdefault(epoch, {}).setdefault(rank, 0)
        found[epoch][rank] += 1
    return found


def test_a_restarted_launch_continues_without_further_words_where_all_ranks_are(tmp_path: Path) -> None:
    out = tmp_path / "r"
    assert [rank.returncode for rank in launch(out, 2, kill="1.2.1")] == [0, -9]
    again = launch(out, 3, restart=1)
    assert [rank.returncode for rank in again] == [0, 0], again
    assert {attempt: (one.world, one.next_epoch) for attempt, one in launches(out).items()} == {1: (2, 0), 2: (2, 1)}
    assert counted(out) == {epoch: {0: 3, 1: 3} for epoch in range(3)}
    assert probes.open(out).state == dict.fromkeys(range(3), "complete")
    assert {(one.epoch, one.attempt) for one in probes.open(out).attempts if one.current} == {(0, 1), (1, 2), (2, 2)}
    assert probes.verify(out).ok


@pytest.mark.torture
def test_a_second_start_by_hand_is_refused_and_continues_with_resume(tmp_path: Path) -> None:
    out = tmp_path / "r"
    launch(out, 1)
    assert all("is not empty" in rank.stderr for rank in launch(out, 2, job="job-2"))
    assert [rank.returncode for rank in launch(out, 2, "resume", job="job-2")] == [0, 0]
    assert counted(out) == {epoch: {0: 3, 1: 3} for epoch in range(2)}


@pytest.mark.torture
@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3), (3, 2), (1, 2)])
def test_the_next_world_may_be_larger_or_smaller(tmp_path: Path, before: int, after: int) -> None:
    out = tmp_path / "r"
    launch(out, 2, world=before, kill="1.1.0")
    again = launch(out, 3, "resume", world=after)
    assert [rank.returncode for rank in again] == [0] * after, again
    assert counted(out) == {0: dict.fromkeys(range(before), 3), **{epoch: dict.fromkeys(range(after), 3) for epoch in (1, 2)}}
    verdict = probes.verify(out)
    assert verdict.ok, verdict.findings
    times = {rank: probes.open(out).sel(epoch=2, rank=rank)["p", "0"].clocks["global_step"].tolist() for rank in range(after)}
    assert all(steps == [6, 7, 8] for steps in times.values())


def test_the_last_rank_prints_the_summary_of_all_ranks_and_names_a_rank_whose_files_are_removed(tmp_path: Path) -> None:
    out = tmp_path / "r"
    ranks = launch(out, 1, ranks="0")
    assert [rank.returncode for rank in ranks] == [0, 0], "a schedule that leaves a rank out is no fault of it"
    said = [line.split() for rank in ranks for line in rank.stdout.splitlines()]
    assert said == [["for", "all:", probes.verify(out).head, "3"]]
    assert probes.verify(out, anchor=said[0][2]).anchored
    assert recover(out).head == said[0][2]
    assert not [path.name for path in out.glob("end*")]
    for path in [*out.glob("*.rank-0001.*")]:
        path.unlink()
    run = probes.open(out)
    assert run.state == {0: "incomplete"}
    assert run.not_shown == ["rank 1 has no file of epoch 0"]
    assert run.sel(rank=0).state == {0: "complete"}
    assert recover(out).absent == {0: (1,)}
    assert {finding.code for finding in probes.verify(out).findings if not finding.note} == {"launch-differs"}
    assert any("rank 1 has no file of epoch 0" in str(finding) for finding in probes.verify(out).findings)


@pytest.mark.torture
def test_a_probe_that_no_rank_captured_fails_the_rank_that_prints_the_summary(tmp_path: Path) -> None:
    ranks = launch(tmp_path / "r", 1, ranks="5")
    assert sorted(rank.returncode for rank in ranks) == [0, 1]
    assert sum("captured-nothing" in rank.stderr for rank in ranks) == 1


STAGES = """
import os, sys
import torch
from torch import nn
import probes

rank, out, lacking = int(os.environ["RANK"]), *sys.argv[1:]
model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
spec = {"version": 1, "name": "r",
    "probes": {"p": {"modules": ["0", "1", "2", "3"], "values": ["output"]}, "q": {"modules": ["0"], "values": ["output"]}},
    "rules": {"small": {"probe": "q", "above": 1e9, "then": "fail"}}}
with probes.attach(model, spec, out=out) as run:
    for epoch in run.epochs(1):
        for step, x in enumerate(run.steps([torch.ones(3, 4)] * 3)):
            for number in (0, 1) if rank == 0 else (2,) if lacking == "lacking" else (2, 3):
                x = model[number](x)
"""


@pytest.mark.parametrize("lacking", ["", pytest.param("lacking", marks=pytest.mark.torture)])
def test_a_value_that_a_rank_never_reaches_is_a_fault_only_if_no_rank_has_it(tmp_path: Path, lacking: str) -> None:
    """As with stages of a pipeline, where each process has all modules and calls its own."""
    about = {**os.environ, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job"}
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(programs.run, "-c", STAGES, tmp_path / "r", lacking, env={**about, "RANK": str(rank)}) for rank in range(2)]
        ranks = [job.result() for job in jobs]
    said = "".join(rank.stderr for rank in ranks)
    assert sorted(rank.returncode for rank in ranks) == ([0, 1] if lacking else [0, 0]), said
    assert [line for line in said.splitlines() if "missed-steps" in line and "`3`" not in line] == []
    assert ("`output` of `3` is missing in 3 of 3 steps" in said) == bool(lacking)


@pytest.mark.torture
def test_a_launch_that_was_killed_before_any_rank_started_begins_again(tmp_path: Path) -> None:
    out = tmp_path / "r"
    launch(out, 1)
    text = (out / "launch.json").read_bytes()
    for path in out.iterdir():
        path.unlink()
    (out / "launch.json").write_bytes(text)
    assert [rank.returncode for rank in launch(out, 1, world=3, job="job-2")] == [0, 0, 0]
    assert launches(out)[1].world == 3
    assert probes.verify(out).ok


@pytest.mark.torture
def test_a_rank_that_never_started_does_not_affect_the_other_ranks(tmp_path: Path) -> None:
    out = tmp_path / "r"
    about = {**os.environ, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job-1", "RANK": "1"}
    programs.run("-c", PROGRAM, out, "2", "1.1.1", "all", env=about)
    assert probes.open(out).state[1] == "unsealed"
    assert [path.name for path in out.glob("run*.json")] == ["run.rank-0001.json"]
    again = launch(out, 2, restart=1)
    assert [rank.returncode for rank in again] == [0, 0], again
    assert counted(out) == {epoch: {0: 3, 1: 3} for epoch in range(2)}
    verdict = probes.verify(out)
    assert verdict.ok, verdict.findings
