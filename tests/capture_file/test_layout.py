"""The content of a sealed file, read with the package and with other software."""

from __future__ import annotations

import json
import shutil
import subprocess
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest

from probes.capture_file.layout import RESERVED
from probes.capture_file.read import SealedFile
from probes.capture_file.series_name import SeriesAddress, group_name
from probes.signature import DTYPES
from tests.run_directory.epochs import ACTS, Shot, payloads, sealed, stored, zoo


def group(file: h5py.File, target: str = "features.0", suffix: str = "") -> h5py.Group:
    return file[f"captures/acts/{target}:output{suffix}"]


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_comes_back_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    shots = [Shot(dtype=dtype, shape=(5, 7), step=step) for step in range(3)]
    assert stored(sealed(tmp_path, shots)) == payloads(shots)


def test_every_bit_pattern_of_bfloat16_reads_as_the_float_it_means(tmp_path: Path) -> None:
    patterns = np.arange(1 << 16, dtype="<u2")
    path = sealed(tmp_path, [Shot(dtype="bfloat16", shape=(1 << 16,), data=patterns.tobytes())])
    with h5py.File(path) as file:
        values = group(file)["values"][0]
    meant = (patterns.astype("<u4") << 16).view("<f4")
    assert np.array_equal(values.astype("<f4"), meant, equal_nan=True)


def test_equal_shapes_are_stacked_on_the_step_axis(tmp_path: Path) -> None:
    shots = [Shot(shape=(4, 5), step=step) for step in range(3)]
    with h5py.File(sealed(tmp_path, shots)) as file:
        series = group(file)
        assert series.attrs["layout"] == b"stacked"
        assert series["values"].shape == (3, 4, 5)
        assert [dim[0].name.rpartition("/")[2] for dim in series["values"].dims] == ["step", "dim_0", "dim_1"]
        assert series["step"][:].tolist() == [0, 1, 2]
        assert series["global_step"][:].tolist() == [100, 101, 102]


def test_a_smaller_last_batch_is_concatenated(tmp_path: Path) -> None:
    shots = [Shot(shape=(8 if step < 2 else 3, 5), step=step, dims=("batch", "channel")) for step in range(3)]
    path = sealed(tmp_path, shots)
    with h5py.File(path) as file:
        series = group(file)
        assert series.attrs["layout"] == b"concatenated"
        assert series["values"].shape == (19, 5)
        assert series["row_size"][:].tolist() == [8, 8, 3]
        assert series["row_size"].attrs["sample_dimension"] == b"batch"
        assert series.attrs["axes"].tolist() == [b"batch", b"channel"]
    assert stored(path) == payloads(shots)


@pytest.mark.parametrize(
    "shapes", [[(2, 5), (2, 7), (2, 3)], [(4,), (2, 2), ()], [(0, 4), (3, 0), (2, 2)]], ids=["sequence length", "rank", "empty"]
)
def test_any_other_change_of_shape_is_ragged(tmp_path: Path, shapes: list[tuple[int, ...]]) -> None:
    shots = [Shot(shape=shape, step=step) for step, shape in enumerate(shapes)]
    path = sealed(tmp_path, shots)
    with h5py.File(path) as file:
        series = group(file)
        assert series.attrs["layout"] == b"ragged"
        rows = [tuple(size for size in row if size >= 0) for row in series["shape"][:].tolist()]
        assert rows == shapes
    assert stored(path) == payloads(shots)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)], ids=str)
def test_a_value_without_axes_or_without_elements_is_kept(tmp_path: Path, shape: tuple[int, ...]) -> None:
    shots = [Shot(shape=shape, step=step) for step in range(2)]
    path = sealed(tmp_path, shots)
    assert stored(path) == payloads(shots)
    assert SealedFile(path).part(SeriesAddress(ACTS)).shapes.tolist() == [list(shape)] * 2


def test_columns_that_do_not_vary_are_attributes(tmp_path: Path) -> None:
    shots = [Shot(step=step, call=call) for step in range(2) for call in range(2)]
    with h5py.File(sealed(tmp_path, shots)) as file:
        series = group(file)
        assert series["call"][:].tolist() == [0, 1, 0, 1]
        assert series["values"].attrs["coordinates"] == b"global_step call order"
        assert "microstep" not in series
        assert series.attrs["microstep"] == 0


def test_a_second_dtype_opens_a_second_series(tmp_path: Path) -> None:
    shots = [Shot(dtype="float16" if step else "float32", step=step) for step in range(3)]
    path = sealed(tmp_path, shots)
    assert stored(path) == payloads(shots[:1])
    assert stored(path, dtype="float16") == payloads(shots[1:])


def test_a_capture_of_an_earlier_epoch_keeps_its_epoch(tmp_path: Path) -> None:
    shots = [Shot(step=9, epoch=2), Shot(step=0), Shot(step=1)]
    path = sealed(tmp_path, shots)
    with h5py.File(path) as file:
        assert group(file)["epoch"][:].tolist() == [2, 3, 3]
        assert group(file)["global_step"][:].tolist() == [2**64 - 1, 100, 101]
    assert stored(path) == payloads(shots)


def test_a_series_without_captures_has_no_group(tmp_path: Path) -> None:
    with h5py.File(sealed(tmp_path, [])) as file:
        assert list(file["captures"]) == []


def test_names_of_axes_never_clash_with_each_other_or_with_names_of_the_format(tmp_path: Path) -> None:
    shot = Shot(shape=(2, 2, 2, 2), dims=("step", "time", "time", "values"))
    with h5py.File(sealed(tmp_path, [shot])) as file:
        series = group(file)
        assert series.attrs["axes"].tolist() == [b"step", b"step_1", b"time", b"time_1", b"values_1"]
        assert series.attrs["dims"].tolist() == [b"step", b"time", b"time", b"values"]
    assert "values" in RESERVED


def test_labels_and_attributes_of_a_series_are_kept(tmp_path: Path) -> None:
    shots = [
        Shot(
            shape=(2,),
            dims=("stat",),
            coords={"stat": ["mean", "größte"]},
            attrs={"hook": "forward", "neutral": False, "transforms": [{"a": 1}]},
        )
    ]
    part = SealedFile(sealed(tmp_path, shots)).part(SeriesAddress(ACTS))
    assert part.coords == {"stat": ("mean", "größte")}
    assert part.attrs["hook"] == "forward"
    assert part.attrs["neutral"] == 0
    assert part.attrs["transforms"] == '[{"a":1}]'


def test_labels_and_attributes_too_large_for_an_attribute_are_texts(tmp_path: Path) -> None:
    labels = [f"label-{number:05d}" for number in range(8000)]
    shot = Shot(shape=(8000,), dims=("feature",), coords={"feature": labels}, attrs={"note": "ä" * 40_000, "large": 2**70})
    path = sealed(tmp_path, [shot])
    with h5py.File(path) as file:
        assert json.loads(group(file)["labels_feature"][()]) == labels
        assert json.loads(group(file)["note"][()]) == "ä" * 40_000
        assert group(file).attrs["large"] == str(2**70).encode()
    assert stored(path) == payloads([shot])


WEIRD = ["", ".", "..", "a/b", "../../etc", "100%", "%41", "ключ", "a:b@c~d", "nul\0l", "tab\t", "\u202e", "x" * 3000, " "]


@pytest.mark.parametrize("target", WEIRD, ids=range(len(WEIRD)))
def test_a_weird_name_is_found_again(tmp_path: Path, target: str) -> None:
    key = ACTS._replace(target=target, leaf="input.a/b", phase="warm@up")
    shots = [Shot(key=key)]
    path = sealed(tmp_path, shots)
    assert list(SealedFile(path).addresses) == [SeriesAddress(key)]
    assert stored(path, key) == payloads(shots)
    assert "/" not in group_name(key)


@pytest.mark.parametrize("ids", [[[3, 4], [5]], [["a", "zß"], []], [[1, "a"], [2**70]]], ids=["numbers", "texts", "mixed"])
def test_sample_ids_are_stored_with_the_steps(tmp_path: Path, ids: list[list[object]]) -> None:
    shots = [Shot(step=step) for step in range(2)]
    path = sealed(tmp_path, shots, annexes={0: {"ids": ids[0]}, 1: {"ids": ids[1]}})
    found = SealedFile(path).ids("train")
    assert found is not None
    flat = [one for row in ids for one in row]
    same_kind = all(isinstance(one, int) and one < 2**63 for one in flat) or all(isinstance(one, str) for one in flat)
    assert found.ids.tolist() == (flat if same_kind else [str(one) for one in flat])
    assert found.sizes.tolist() == [len(row) for row in ids if row]


def test_xarray_opens_everything_without_a_warning(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray", reason="the extra `xarray` is not installed")
    path = sealed(tmp_path, zoo(), annexes={0: {"ids": [1, 2]}, 1: {"ids": [3]}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xarray.open_datatree(path, engine="h5netcdf") as tree:
            tree.load()
            first = tree["captures/acts/features.0:output"]
            assert first["values"].dims == ("step", "row", "step_1")
            assert "global_step" in first.coords
        for name in ("attention:output", "fc:output", "shared:output", "half:output"):
            with xarray.open_dataset(path, group=f"captures/acts/{name}", engine="h5netcdf") as one:
                one.load()
                assert one["step"].dims == ("step",)


def test_h5dump_reads_the_file(tmp_path: Path) -> None:
    if shutil.which("h5dump") is None:
        pytest.skip("h5dump is not installed")
    path = sealed(tmp_path, zoo())
    done = subprocess.run(["h5dump", "-H", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'GROUP "features.0:output"' in done.stdout


def test_viewers_find_the_signal(tmp_path: Path) -> None:
    with h5py.File(sealed(tmp_path, zoo())) as file:
        assert file.attrs["NX_class"] == b"NXroot"
        assert file[file.attrs["default"].decode()].attrs["NX_class"] == b"NXentry"
        series = group(file)
        assert series.attrs["NX_class"] == b"NXdata"
        assert series.attrs["signal"].decode() in series
        assert len(series.attrs["axes"]) == series["values"].ndim


def test_only_numbers_and_fixed_texts_are_stored(tmp_path: Path) -> None:
    seen: set[int] = set()

    def look(_: str, item: h5py.Group | h5py.Dataset) -> None:
        for name in item.attrs:
            kind = item.attrs.get_id(name).get_type()
            if name not in ("DIMENSION_LIST", "REFERENCE_LIST"):
                seen.add(kind.get_class())
                assert not kind.is_variable_str() if kind.get_class() == h5py.h5t.STRING else True
        if isinstance(item, h5py.Dataset):
            seen.add(item.id.get_type().get_class())

    with h5py.File(sealed(tmp_path, zoo(), annexes={0: {"ids": ["a"]}})) as file:
        look("/", file)
        file.visititems(look)
    assert seen == {h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING}


def test_one_file_alone_holds_spec_and_manifest(tmp_path: Path) -> None:
    file = SealedFile(sealed(tmp_path, zoo()))
    assert file.root.text("spec") == "version: 1\n"
    assert file.document("resolved") == {"version": 1}
    assert file.document("manifest")["identity"]["code"] == "cc"
    assert file.document("closing")["steps"] == {"train": 4}
    assert file.attributes["run_id"] == "20261121T000000Z-abcd"
    assert (file.attributes["epoch"], file.attributes["attempt"], file.attributes["segment"]) == (3, 1, 0)
