"""zarr, read back by zarr and by xarray where they are installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import probes
from probes.errors import MissingExtra, UsageError
from probes.reader.export import zarr_directory
from probes.reader.export.file import _replacing_folder
from probes.signature import DTYPES
from tests.reader.recorded import KEY, Recording

needs_zarr = pytest.mark.skipif(find_spec("zarr") is None, reason="zarr is not installed")


@pytest.mark.skipif(find_spec("zarr") is not None, reason="zarr is installed")
def test_without_zarr_one_sentence_states_how_to_install_it(tmp_path: Path) -> None:
    Recording(tmp_path / "run").take(np.zeros(2, "<f4")).sealed()
    with pytest.raises(
        MissingExtra, match=r"the format `zarr` needs the package `zarr`; install it with: pip install \"torch-probes\[zarr\]\""
    ):
        probes.open(tmp_path / "run").export(tmp_path / "a.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_interrupt_while_a_folder_is_replaced_leaves_the_former_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "zarr.json").write_text("former")
    renamed = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if path.name.endswith(".new.tmp"):
            raise KeyboardInterrupt
        return renamed(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), _replacing_folder(tmp_path / "a.zarr"):
        pass
    assert (tmp_path / "a.zarr" / "zarr.json").read_text() == "former"
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]


def test_a_folder_of_another_program_is_never_replaced(tmp_path: Path) -> None:
    Recording(tmp_path / "run").take(np.zeros(2, "<f4")).sealed()
    with pytest.raises(UsageError, match="exists and is not a zarr group"):
        probes.open(tmp_path / "run").export(tmp_path / "run", format="zarr")
    with pytest.raises(UsageError, match="has no wide form"):
        probes.open(tmp_path / "run").export(tmp_path / "a.zarr", wide=True)


@needs_zarr
@pytest.mark.parametrize("size", [64, 1 << 20])
def test_each_dtype_comes_back_over_all_epochs(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import zarr

    monkeypatch.setattr(zarr_directory, "CHUNK_BYTES", size)
    random = np.random.default_rng(0)
    for epoch in range(2):
        recording = Recording(tmp_path / "run", epoch)
        for name, kind in DTYPES.items():
            for step in range(3):
                bits = random.integers(0, 2 if name == "bool" else 256, (2, 3, kind.itemsize), np.uint8).view(f"<{kind.numpy}")
                recording.take(bits, key=KEY._replace(probe=name), dtype=name, shape=(2, 3), step=step)
        recording.sealed()
    run = probes.open(tmp_path / "run")
    for _ in range(2):  # the second export replaces the first
        run.export(tmp_path / "a.zarr")
    root = zarr.open_group(str(tmp_path / "a.zarr"), mode="r")
    assert root.attrs["probes.captures_roots"] == run.about["probes.captures_roots"]
    for series in run.series:
        group = root[series.word]
        np.testing.assert_array_equal(group["values"][:], series.numpy())
        assert group["step"][:].tolist() == [0, 1, 2, 0, 1, 2]
        assert group["global_step"][:].tolist() == series.clocks["global_step"].tolist()
        assert group.attrs["torch_dtype"] == series.dtype
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


@needs_zarr
@pytest.mark.parametrize("shapes", [[(0,), (0,)], [(0, 3), (0, 3)], [(2, 0), (2, 0)], [(0, 3), (2, 3)], [(2, 0), (3, 0)]])
def test_captures_without_elements_are_arrays_without_elements(shapes: list[tuple[int, ...]], tmp_path: Path) -> None:
    import zarr

    recording = Recording(tmp_path / "run")
    for step, shape in enumerate(shapes):
        recording.take(np.ones(shape, "<f4"), step=step)
    recording.sealed()
    run = probes.open(tmp_path / "run")
    run.export(tmp_path / "a.zarr")
    stacked = len({*shapes}) == 1
    expected = run["acts", "fc1"].numpy() if stacked else run["acts", "fc1"].rows()
    found = zarr.open_group(str(tmp_path / "a.zarr"), mode="r")["acts/fc1:output"]
    assert found["values"].shape == expected.shape
    np.testing.assert_array_equal(found["values"][:], expected)
    for name in ("npz", "parquet", "arrow", "safetensors", "jsonl"):
        run.export(tmp_path / f"a.{name}")


@needs_zarr
def test_xarray_opens_a_series_by_its_name(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    recording = Recording(tmp_path / "run")
    stats = {"stat": ("mean", "std")}
    hostile = KEY._replace(target="../__x/<script>")
    for step in range(3):
        recording.take(np.array([step, 10.0 + step]), dims=("stat",), coords=stats, step=step)
        recording.take(np.full((step + 1, 2), step, "<f4"), key=KEY._replace(probe="rows"), dims=("batch", "feature"), step=step)
        recording.take(np.zeros(1), key=hostile, step=step)
    recording.sealed()
    run = probes.open(tmp_path / "run")
    run.export(tmp_path / "a.zarr")
    found = xarray.open_zarr(tmp_path / "a.zarr", group="acts/fc1:output")
    assert found["values"].sel(stat="std").values.tolist() == [10, 11, 12]
    assert found["global_step"].values.tolist() == [0, 1, 2]
    rows = xarray.open_zarr(tmp_path / "a.zarr", group="rows/fc1:output")
    assert rows["values"].dims == ("row", "feature")
    assert rows["values"].values.tolist() == run["rows", "fc1"].rows().tolist()
    assert rows["step"].values.tolist() == [0, 1, 1, 2, 2, 2]
    assert not (tmp_path / "__x").exists()


@needs_zarr
def test_the_clock_and_the_labels_are_coordinates_whatever_the_axes_are_called(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    recording = Recording(tmp_path / "run")
    names = {"clock": ("step", "epoch"), "array": ("values", "row"), "plain": ("batch", "stat")}
    for probe, dims in names.items():
        for step in range(2):
            labels = {dims[1]: ("mean", "std")}
            recording.take(np.full((3, 2), step, "<f4"), key=KEY._replace(probe=probe), dims=dims, coords=labels, step=step)
    recording.sealed()
    run = probes.open(tmp_path / "run")
    run.export(tmp_path / "a.zarr")
    for probe, dims in {"clock": ("step_1", "epoch_1"), "array": ("values_1", "row"), "plain": ("batch", "stat")}.items():
        found = xarray.open_zarr(tmp_path / "a.zarr", group=f"{probe}/fc1:output")
        assert list(found.data_vars) == ["values"]
        assert found["values"].dims == ("step", *dims)
        assert {"epoch", "global_step", "rank", dims[1]} <= {*found.coords}
        assert found["values"].sel({dims[1]: "std", "step": 1}).values.tolist() == [1, 1, 1]
    assert run["clock", "fc1"].xarray().sel(epoch_1="std", step=1).values.tolist() == [1, 1, 1]
