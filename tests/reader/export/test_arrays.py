"""npz and safetensors, read back by numpy and safetensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import probes
from probes.cli import cli
from probes.errors import StorageError, UsageError
from probes.reader.export import npz_file, safetensors_file
from probes.reader.run import RunReader
from probes.signature import DTYPES
from tests.reader.recorded import KEY, Recording

safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed; transformers brings it")


@pytest.fixture
def run(tmp_path: Path) -> RunReader:
    """Each dtype as a probe, with random bits."""
    random = np.random.default_rng(0)
    for epoch in range(2):
        recording = Recording(tmp_path / "run", epoch)
        for name, kind in DTYPES.items():
            for step in range(3):
                bits = random.integers(0, 2 if name == "bool" else 256, (2, 3, kind.itemsize), np.uint8).view(f"<{kind.numpy}")
                recording.take(bits, key=KEY._replace(probe=name), dtype=name, shape=(2, 3), step=step)
        recording.sealed()
    return probes.open(tmp_path / "run")


@pytest.mark.parametrize("elements", [1, 1 << 20])
def test_each_dtype_of_the_format_comes_back_bit_for_bit(
    run: RunReader, tmp_path: Path, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safetensors_file, "ELEMENTS", elements)
    monkeypatch.setattr(npz_file, "ELEMENTS", elements)
    fitting = "{" + ",".join(safetensors_file.NAMES) + "}"
    run.export(tmp_path / "a.safetensors", fitting)
    tensors = safetensors.load_file(tmp_path / "a.safetensors")
    run.export(tmp_path / "a.npz")
    arrays = np.load(tmp_path / "a.npz")
    for series in run.series:
        clocks = [[int(number) for number in clock] for clock in series.clocks.tolist()]
        np.testing.assert_array_equal(arrays[series.word], series.numpy())
        assert arrays[f"{series.word}.clocks"].tolist() == series.clocks.tolist()
        if series.dtype in safetensors_file.NAMES:
            loaded = tensors[series.word]
            assert loaded.dtype == getattr(torch, series.dtype)
            assert torch.equal(loaded.view(torch.uint8), series.torch().view(torch.uint8))
            assert tensors[f"{series.word}.clocks"].tolist() == clocks


def test_the_metadata_leads_back_to_the_run(run: RunReader, tmp_path: Path) -> None:
    run.export(tmp_path / "a.safetensors", "float32")
    with safetensors.safe_open(tmp_path / "a.safetensors", "pt") as file:
        found = file.metadata()
    assert found["clock"].split() == ["epoch", "step", "global_step", "microstep", "call", "backward", "rank"]
    assert json.loads(found["probes.captures_roots"]) == {str(epoch): root for (epoch, _), root in run.captures_roots.items()}


def test_a_dtype_that_the_format_lacks_is_refused_before_anything_is_written(run: RunReader, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds `complex128`, which safetensors does not have; `--format npz` takes it"):
        run.export(tmp_path / "a.safetensors", "complex128")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_captures_of_different_rows_are_joined(tmp_path: Path) -> None:
    Recording(tmp_path / "run").take(np.zeros((3, 2), "<f4")).take(np.ones((1, 2), "<f4"), step=1).sealed()
    probes.open(tmp_path / "run").export(tmp_path / "a.safetensors")
    found = safetensors.load_file(tmp_path / "a.safetensors")
    assert found["acts/fc1:output"].tolist() == [[0, 0]] * 3 + [[1, 1]]
    assert found["acts/fc1:output.row_sizes"].tolist() == [3, 1]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    run = probes.open(Recording(tmp_path / "run").take(np.zeros(2, "<f4")).sealed().parent)
    for name in ("a.npz", "a.zarr", "a.parquet"):
        with pytest.raises(StorageError, match=r'the folder ".*nodir" does not exist'):
            run.export(tmp_path / "nodir" / name)


def test_a_dash_is_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Recording(tmp_path / "run").take(np.zeros(2, "<f4")).sealed()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["export", "run", "-o", "-"])
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1)
    assert CliRunner().invoke(cli, ["export", "run", "-o", "-", "--format", "npz"]).exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
