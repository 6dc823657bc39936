"""A launch of two processes that is run again: torchrun starts as many, and each rank is compared with itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import probes
from tests.script.test_launch import SCRIPT, SPEC, launched
from tests.script.test_spawned_children import SCRIPT as SPAWNS

pytest.importorskip("torch.distributed.run", reason="this PyTorch is built without distributed")
pytestmark = pytest.mark.torture

RUN = ("-m", "probes", "run", "--out", "run", "probe.yaml", "train.py", "--weights")


def recorded(folder: Path, script: str = SCRIPT, spec: str = SPEC) -> Path:
    """A folder with the files of a launch in `run`."""
    folder.mkdir()
    (folder / "train.py").write_text("import os\n" + script)
    (folder / "probe.yaml").write_text(spec)
    launched(folder, *RUN)
    return folder


def replayed(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    about = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NO_COLOR": "1", **more}
    command = [sys.executable, "-m", "probes", "replay", "run", "--yes", "--out", "again", *words]
    return subprocess.run(command, cwd=folder, env=about, text=True, capture_output=True, timeout=240, check=False)


def test_a_launch_captures_the_same_again_on_every_rank(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a")
    done = replayed(folder, "--bitwise")
    assert done.returncode == 0, done.stderr
    run, again = probes.open(folder / "run"), probes.open(folder / "again")
    assert run.captures_roots == again.captures_roots
    assert len(run.captures_roots) == 4
    assert run.weights == again.weights is not None
    assert [one["world"] for one in again.launches] == [2]
    assert probes.verify(folder / "again").ok
    roots = [run.captures_roots[epoch, rank] for rank in (0, 1) for epoch in (0, 1)]
    shutil.rmtree(folder / "again")
    done = replayed(folder, *(word for root in roots for word in ("--expect", root)))
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_different_capture_of_one_rank_is_named_with_its_rank(tmp_path: Path) -> None:
    each = "    data = TensorDataset(torch.randn(12, 4))\n"
    odd = "    if 'AGAIN' in os.environ and distributed.get_rank() == 1:\n        data.tensors[0][-1] += 1\n"
    folder = recorded(tmp_path / "a", SCRIPT.replace(each, each + odd))
    done = replayed(folder, AGAIN="1")
    assert done.returncode == 1, done.stderr
    assert "rank 1" in done.stdout, done.stdout


def test_a_launch_that_spares_a_rank_is_replayed(tmp_path: Path) -> None:
    spared = SPEC.replace("values: [output, grad_output]}", "values: [output, grad_output], when: {ranks: {at: [1]}}}")
    folder = recorded(tmp_path / "a", spec=spared)
    done = replayed(folder)
    assert done.returncode == 0, done.stderr
    assert len(probes.open(folder / "again")["acts", "a", "output"].sel(rank=1)) == 6


def test_a_launch_is_replayed_within_the_environment_of_another_one(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a")
    outer = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "other", "TORCHELASTIC_RESTART_COUNT": "2"}
    outer |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "SLURM_JOB_ID": "7", "SLURM_PROCID": "3", "SLURM_NTASKS": "8"}
    done = replayed(folder, **outer)
    assert done.returncode == 0, done.stderr
    assert [one["world"] for one in probes.open(folder / "again").launches] == [2]


def test_a_script_that_starts_its_ranks_itself_is_replayed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWNS)
    (tmp_path / "probe.yaml").write_text("version: 1\nprobes: {acts: {hook: forward, modules: [fc]}}\n")
    words = ["-m", "probes", "run", "--out", "run", "probe.yaml", "train.py", "spawn", "group"]
    about = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    subprocess.run([sys.executable, *words], cwd=tmp_path, env=about, check=True, capture_output=True)
    (tmp_path / "store").unlink(missing_ok=True)  # of the process group
    assert [(one["launcher"], one["world"]) for one in probes.open(tmp_path / "run").launches] == [("script", 2)]
    done = replayed(tmp_path, "--bitwise")
    assert done.returncode == 0, done.stderr
    assert [one["world"] for one in probes.open(tmp_path / "again").launches] == [2]
