"""Training in processes that the script starts itself: they join the run, each as a rank."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import probes
from probes.script.progress import Progress
from probes.script.run_request import Command, RunRequest
from probes.script.session import ProgramWatch
from probes.script.started_programs import StartedPrograms
from probes.spec import load_spec
from tests.warm import programs

pytest.importorskip("torch.distributed", reason="this PyTorch is built without distributed")

SCRIPT = """
import os, sys
import torch
import torch.multiprocessing as mp
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
    def forward(self, x):
        return self.fc(x)

def work(index, world, group):
    if group:
        distributed.init_process_group("gloo", store=distributed.FileStore("store", world), rank=index, world_size=world)
    torch.manual_seed(index)
    net = DistributedDataParallel(Net()) if group else Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    seen = []
    for _ in range(3):
        optimizer.zero_grad()
        y = net(torch.randn(2, 3))
        seen.append(y.detach().clone())
        y.square().mean().backward()
        optimizer.step()
    torch.save(torch.stack(seen), f"seen.{index}")
    if group:
        distributed.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(work, args=(2, "group" in sys.argv), nprocs=2, start_method=sys.argv[1])
    print("trained")
"""


def trained(folder: Path, *words: str, target: str = "fc") -> CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    (folder / "p.yaml").write_text(f"version: 1\nprobes: {{acts: {{hook: forward, modules: [{target}]}}}}\n")
    about = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return programs.run("-m", "probes", "run", "--out", "r", "p.yaml", "train.py", *words, cwd=folder, env=about)


@pytest.mark.torture
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_children_of_a_process_group_are_the_ranks_of_one_run(way: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    done = trained(tmp_path, way, "group")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained\n"
    run = probes.open(tmp_path / "r")
    for rank in (0, 1):
        seen = torch.load(tmp_path / f"seen.{rank}", weights_only=True)
        assert torch.equal(run["acts", "fc"].sel(rank=rank).torch(), seen)
    assert probes.verify(tmp_path / "r").ok
    assert done.stderr.count("head of the run") == 1


@pytest.mark.torture
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_the_first_child_without_a_process_group_is_captured_and_the_others_report_that_they_are_not(way: str, tmp_path: Path) -> None:
    done = trained(tmp_path, way)
    assert done.returncode == 0, done.stderr
    assert len(probes.open(tmp_path / "r")["acts", "fc"]) == 3
    assert "process 1 of `torch.multiprocessing.spawn` is not captured" in done.stderr
    assert (tmp_path / "seen.1").exists()


@pytest.mark.torture
def test_a_missing_capture_of_children_fails_the_run_and_not_their_training(tmp_path: Path) -> None:
    done = trained(tmp_path, "spawn", "group", target="fc")
    assert done.returncode == 0
    (tmp_path / "p.yaml").write_text("version: 1\nprobes: {acts: {hook: forward, modules: [fc], when: {steps: {at: [99]}}}}\n")
    for path in tmp_path.glob("s*"):
        path.unlink()
    about = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = programs.run("-m", "probes", "run", "--out", "other", "p.yaml", "train.py", "spawn", "group", cwd=tmp_path, env=about)
    assert (done.returncode, done.stdout) == (1, "trained\n")
    assert "captured-nothing" in done.stderr


def rewritten(words: list[str], **variables: str) -> list[str]:
    command = Command((sys.executable, "-m", "probes", "run", "--out", "r", "p.yaml"), ("train.py",))
    return StartedPrograms(command)._words(words, variables or None)  # type: ignore[no-any-return]  # a command line has any type


def test_a_script_that_a_trainer_starts_for_another_local_rank_gets_the_probes_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    ours = [sys.executable, str(Path("train.py").absolute()), "--lr", "1"]
    before = [sys.executable, "-m", "probes", "run", "--out", "r", "p.yaml"]
    assert rewritten(ours, LOCAL_RANK="1", WORLD_SIZE="2") == [*before, *ours[1:]]
    for words in ([sys.executable, "other.py"], ["git", "status"], [sys.executable]):
        assert rewritten(words, LOCAL_RANK="1", WORLD_SIZE="2") == words
    assert rewritten(ours) == ours
    assert rewritten(ours, LOCAL_RANK="1") == ours
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert rewritten(ours, LOCAL_RANK="1", WORLD_SIZE="2") == ours, "a worker of that rank, not another rank"


@pytest.mark.parametrize("environment", [os.environb, {b"LOCAL_RANK": b"1"}, {"LOCAL_RANK": Path("1"), "WORLD_SIZE": "2"}])
def test_a_program_is_started_with_every_environment_that_subprocess_takes(environment: object) -> None:
    words = [sys.executable, "train.py"]
    command = Command((sys.executable, "-m", "probes", "run", "p.yaml"), ("train.py",))
    assert StartedPrograms(command)._words(words, environment) is words


LAUNCHED = """
import os, sys
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
    def forward(self, x):
        return self.fc(x)

if sys.argv[1].startswith("ddp"):
    import pytorch_lightning as pl
    from torch.utils.data import DataLoader, TensorDataset

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.fc, self.seen = nn.Linear(3, 1), []
        def training_step(self, batch, _index):
            y = self.fc(batch[0])
            self.seen.append(y.detach().clone())
            return y.square().mean()
        def on_train_end(self):
            torch.save(torch.stack(self.seen), f"seen.{self.global_rank}")
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

def work():
    distributed.is_initialized() or distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(rank)
    net = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    seen = []
    for _ in range(3):
        optimizer.zero_grad()
        y = net(torch.randn(2, 3))
        seen.append(y.detach().clone())
        y.square().mean().backward()
        optimizer.step()
    torch.save(torch.stack(seen), f"seen.{rank}")
    distributed.destroy_process_group()

if __name__ == "__main__":
    if sys.argv[1] == "debug_launcher":
        from accelerate import debug_launcher
        def with_group():
            from accelerate import PartialState
            PartialState(cpu=True)
            work()
        debug_launcher(with_group, num_processes=2)
    elif sys.argv[1] == "elastic_launch":  # by which notebook_launcher starts processes where there are accelerators
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch
        config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="none", rdzv_endpoint="127.0.0.1:0", rdzv_backend="c10d",
            max_restarts=0, start_method="fork", rdzv_configs={"timeout": 60})
        elastic_launch(config=config, entrypoint=work)()
    else:
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = pl.Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy=sys.argv[1], **quiet)
        trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(12, 3)), batch_size=2))
    print("trained")
"""


@pytest.mark.torture
@pytest.mark.parametrize(
    ("way", "needs"),
    [
        ("debug_launcher", "accelerate"),
        ("elastic_launch", "torch"),
        *((way, "pytorch_lightning") for way in ("ddp", "ddp_spawn", "ddp_fork", "ddp_notebook")),
    ],
)
def test_children_of_launchers_of_functions_are_the_ranks_of_one_run(way: str, needs: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip(needs)
    (tmp_path / "train.py").write_text(LAUNCHED)
    (tmp_path / "p.yaml").write_text("version: 1\nprobes: {acts: {hook: forward, modules: [fc]}}\n")
    about = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "probes", "run", "--out", "r", "p.yaml", "train.py", way]
    done = subprocess.run(command, cwd=tmp_path, env=about, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    run = probes.open(tmp_path / "r")
    for rank in (0, 1):
        seen = torch.load(tmp_path / f"seen.{rank}", weights_only=True)
        assert torch.equal(run["acts", "fc"].sel(rank=rank).torch(), seen), done.stderr
    assert probes.verify(tmp_path / "r").ok
    assert done.stderr.count("head of the run") == 1


LAZY = """
import multiprocessing, os

def train(rank):
    import torch
    net = torch.nn.Sequential(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    return rank

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    child = context.Process(target=train, args=(2,), name="third")
    child.start()
    with context.Pool(1) as pool:
        trained = pool.map(train, [0, 1])
    child.join()
    print("trained", trained, child.exitcode)
"""


def test_processes_that_import_torch_themselves_train_to_their_end_and_say_that_they_are_not_captured(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LAZY)
    (tmp_path / "p.yaml").write_text('version: 1\nprobes: {acts: {hook: forward, modules: ["0"]}}\n')
    command = [sys.executable, "-m", "probes", "run", "--out", "r", "p.yaml", "train.py"]  # a real interpreter, without torch
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "trained [0, 1] 0\n"), done.stderr
    assert done.stderr.count("trains a model and is not captured, because it was forked from the program") == 1, done.stderr
    assert done.stderr.count("process `third` is not captured") == 1
    assert "the program did not import torch in this process" in done.stderr
    assert not (tmp_path / "r").exists()


def test_a_process_starts_also_without_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_options: object) -> None:
        raise OSError(28, "No space left on device")

    said: list[str] = []
    watch = ProgramWatch(RunRequest(load_spec({"version": 1, "probes": {"acts": {"modules": ["fc"], "hook": "forward"}}})), Progress())
    monkeypatch.setattr(watch.children, "notice", said.append)
    monkeypatch.setattr("tempfile.mkstemp", full)
    process = multiprocessing.get_context("fork").Process(target=Target())
    watch.children._starts(process)
    assert isinstance(process._target, Target)  # type: ignore[attr-defined]  # multiprocessing keeps it there in every release
    assert [line.endswith("[Errno 28] No space left on device") for line in said] == [True]


class Target:
    """A function of a script."""

    __module__ = "__main__"

    def __call__(self) -> None:
        """Train nothing."""


PROCESSES = """
import os, sys
import torch
import torch.multiprocessing as mp
from torch import distributed, nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
    def forward(self, x):
        return self.fc(x)

def train(rank, *, size):
    if "group" in sys.argv:
        distributed.init_process_group("gloo", store=distributed.FileStore("store", size), rank=rank, world_size=size)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(2, 3)).square().mean().backward()
        optimizer.step()
    if "group" in sys.argv:
        distributed.destroy_process_group()

if __name__ == "__main__":
    context = mp.get_context(sys.argv[1])
    children = [context.Process(target=train, args=(rank,), kwargs={"size": 2}) for rank in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print("trained", [child.exitcode for child in children])
"""


@pytest.mark.torture
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_processes_with_ranks_that_the_script_makes_itself_are_the_ranks_of_one_run(way: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROCESSES)
    (tmp_path / "p.yaml").write_text("version: 1\nprobes: {acts: {hook: forward, modules: [fc]}}\n")
    about = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    words = ("-m", "probes", "run", "--out", "r", "p.yaml", "train.py", way)
    done = programs.run(*words, "group", cwd=tmp_path, env=about)
    assert (done.returncode, done.stdout) == (0, "trained [0, 0]\n"), done.stderr
    run = probes.open(tmp_path / "r")
    assert [len(run["acts", "fc"].sel(rank=rank)) for rank in (0, 1)] == [3, 3]
    assert probes.verify(tmp_path / "r").ok
    assert done.stderr.count("head of the run") == 1


@pytest.mark.torture
def test_processes_without_a_rank_say_before_their_first_step_that_they_are_not_captured(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROCESSES)
    (tmp_path / "p.yaml").write_text("version: 1\nprobes: {acts: {hook: forward, modules: [fc]}}\n")
    words = ("-m", "probes", "run", "--out", "r", "p.yaml", "train.py", "spawn")
    done = programs.run(*words, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert (done.returncode, done.stdout) == (1, "trained [0, 0]\n"), done.stderr
    for name in ("Process-1", "Process-2"):
        assert f"process `Spawn{name}` is not captured" in done.stderr or f"process `{name}` is not captured" in done.stderr
    assert "called no model in this process" in done.stderr
