"""Launches that nobody plans for: ranks with other specs, other modules or other data, and processes of a rank that are no ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import probes
from tests.warm import programs

pytest.importorskip("torch.distributed", reason="this PyTorch is built without distributed")

BEGIN = """
import os, sys
import torch
from torch import distributed, nn
import probes

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
spec = {"version": 1, "name": "s", "probes": {"p": {"modules": ["**"], "types": ["Linear"], "values": ["output"]}}}
torch.manual_seed(0)

def group():
    store = distributed.FileStore(os.environ["STORE"], world)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)

def train(run, model, epochs=2, steps=3):
    for epoch in run.epochs(epochs):
        for x in run.steps([torch.ones(2, 4)] * steps):
            model(x).sum().backward()
"""
SPAWNS = """
import os, sys
import torch
import torch.multiprocessing as mp
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
    def forward(self, x):
        return self.a(x)

def work(index, net):
    net(torch.ones(1, 4))
    open(f"worked.{os.environ.get('RANK')}.{index}", "w").close()

if __name__ == "__main__":
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if "train" in sys.argv:
        for _ in range(2):
            for x in torch.utils.data.DataLoader(torch.ones(4, 4), batch_size=2):
                optimizer.zero_grad()
                net(x).sum().backward()
                optimizer.step()
            mp.spawn(work, args=(net,), nprocs=2)
    elif os.environ.get("RANK") == "1":
        mp.spawn(work, args=(net,), nprocs=2)
    else:
        net(torch.ones(1, 4))
"""


def ranks(folder: Path, *words: str, world: int = 2, job: str = "job", **more: str) -> list[CompletedProcess[str]]:
    """Start the ranks of a launch at the same time, and let them end."""
    about = {**os.environ, "WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": job, "STORE": str(folder / f"store.{job}"), **more}
    about |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with ThreadPoolExecutor(world) as pool:
        each: list[Mapping[str, str]] = [{**about, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
        return list(pool.map(lambda env: programs.run(*words, cwd=folder, env=dict(env)), each))


def test_a_rank_with_another_spec_is_refused_before_its_first_step(tmp_path: Path) -> None:
    program = """
group()
if rank == 1:
    spec["probes"]["p"]["values"] = ["input"]
model = nn.Sequential(nn.Linear(4, 4))
model.register_forward_hook(lambda *_: open(f"called.{rank}", "w").close())
try:
    with probes.attach(model, spec, out="run") as run:
        train(run, model)
except probes.ProbesError as error:
    sys.exit(f"{error}")
"""
    done = ranks(tmp_path, "-c", BEGIN + program)
    assert sorted(one.returncode for one in done) == [0, 1], [one.stderr for one in done]
    ((late, said),) = [(rank, one.stderr) for rank, one in enumerate(done) if one.returncode]
    assert f"rank {late} has another spec" in said
    assert not (tmp_path / f"called.{late}").exists()


@pytest.mark.torture
def test_ranks_that_attach_to_other_modules_of_one_model_are_one_run_and_resume(tmp_path: Path) -> None:
    program = """
group()
whole = nn.ModuleDict({"encoder": nn.Sequential(nn.Linear(4, 4)), "decoder": nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))})
model = whole["encoder" if rank == 0 else "decoder"]
with probes.attach(model, spec, out="run", resume=True) as run:
    train(run, model, int(sys.argv[1]))
distributed.barrier()
distributed.destroy_process_group()
"""
    for job, epochs in (("first", 2), ("second", 3)):
        done = ranks(tmp_path, "-c", BEGIN + program, str(epochs), job=job)
        assert [one.returncode for one in done] == [0, 0], [one.stderr for one in done]
    run = probes.open(tmp_path / "run")
    assert probes.verify(tmp_path / "run").ok
    assert (run.state, run.not_shown) == (dict.fromkeys(range(3), "complete"), [])
    assert [len(run.sel(rank=rank)["p", name, "output"]) for rank, name in ((0, "0"), (1, "0"), (1, "1"))] == [9, 9, 9]


@pytest.mark.torture
def test_ranks_with_uneven_data_have_their_own_numbers_of_steps(tmp_path: Path) -> None:
    program = """
from torch.distributed.algorithms.join import Join
group()
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with probes.attach(model, spec, out="run") as run:
    for epoch in run.epochs(2):
        with Join([model]):
            for x in run.steps([torch.ones(2, 4)] * (2 + rank)):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
distributed.destroy_process_group()
"""
    done = ranks(tmp_path, "-c", BEGIN + program, world=4)
    assert [one.returncode for one in done] == [0] * 4, [one.stderr for one in done]
    run = probes.open(tmp_path / "run")
    assert [len(run["p", "0", "output"].sel(rank=rank, epoch=1)) for rank in range(4)] == [2, 3, 4, 5]
    assert probes.verify(tmp_path / "run", replicas=True).ok
    assert run.state == {0: "complete", 1: "complete"}


@pytest.mark.torture
def test_one_program_has_several_runs_one_after_the_other_on_all_ranks(tmp_path: Path) -> None:
    program = """
group()
model = nn.Sequential(nn.Linear(4, 4))
for out in ("a", "b"):
    with probes.attach(model, spec, out=out) as run:
        train(run, model)
with probes.attach(model, spec, out="a", resume=True) as run:
    train(run, model, 3)
try:
    with probes.attach(model, spec, out="b") as run:
        train(run, model)
except probes.ProbesError as error:
    print(error)
"""
    done = ranks(tmp_path, "-c", BEGIN + program)
    assert [one.returncode for one in done] == [0, 0], [one.stderr for one in done]
    assert all('"b" is not empty' in one.stdout.replace(f"{tmp_path}/", "") for one in done)
    assert [one["next_epoch"] for one in probes.open(tmp_path / "a").launches] == [0, 2]
    for name, epochs in (("a", 3), ("b", 2)):
        assert probes.open(tmp_path / name).state == dict.fromkeys(range(epochs), "complete")
        assert probes.verify(tmp_path / name).ok


@pytest.mark.torture
def test_one_of_two_launches_in_one_directory_is_refused_on_all_its_ranks(tmp_path: Path) -> None:
    program = """
group()
model = nn.Sequential(nn.Linear(4, 4))
try:
    with probes.attach(model, spec, out="run") as run:
        train(run, model, 2, 20)
except probes.ProbesError as error:
    sys.exit(f"{error}")
"""
    with ThreadPoolExecutor(2) as pool:
        both = [*pool.map(lambda job: ranks(tmp_path, "-c", BEGIN + program, job=job), "ab")]
    assert sorted([one.returncode for one in done] for done in both) == [[0, 0], [1, 1]]
    assert all("choose another directory" in one.stderr for done in both for one in done if one.returncode)
    assert probes.verify(tmp_path / "run").ok
    assert len(probes.open(tmp_path / "run").launches) == 1


@pytest.mark.torture
@pytest.mark.parametrize("rank", ["1", None])
def test_workers_that_a_trained_process_spawns_are_not_captured_and_do_not_end_it(tmp_path: Path, rank: str | None) -> None:
    for name, text in {"t.py": SPAWNS, "p.yaml": "version: 1\nprobes: {p: {modules: [a], values: [output]}}\n"}.items():
        (tmp_path / name).write_text(text)
    words = ("-m", "probes", "run", "--out", "run", "p.yaml", "t.py", "train")
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = [programs.run(*words, cwd=tmp_path, env=alone)] if rank is None else ranks(tmp_path, *words)
    assert [one.returncode for one in done] == [0] * len(done), [one.stderr for one in done]
    assert all("`torch.multiprocessing.spawn` from now on are not captured" in one.stderr for one in done)
    assert (tmp_path / f"worked.{rank}.1").exists()
    assert len(probes.open(tmp_path / "run")["p", "a", "output"]) == 4 * len(done)
    assert probes.verify(tmp_path / "run").ok


@pytest.mark.torture
def test_workers_that_have_only_the_rank_of_their_parent_are_not_captured(tmp_path: Path) -> None:
    for name, text in {"t.py": SPAWNS, "p.yaml": "version: 1\nprobes: {p: {modules: [a], values: [output]}}\n"}.items():
        (tmp_path / name).write_text(text)
    done = ranks(tmp_path, "-m", "probes", "run", "--out", "run", "p.yaml", "t.py")
    assert done[1].stderr.count("it has the rank of the process that started it") == 2, done[1].stderr
    assert done[0].returncode == 0, done[0].stderr
    assert (tmp_path / "worked.1.0").exists()
    assert (tmp_path / "worked.1.1").exists()
    assert len(probes.open(tmp_path / "run")["p", "a", "output"]) == 1
