import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import probes
from probes.errors import MissingExtra, RaggedSeries
from probes.reader.series import Series
from probes.signature import DTYPES
from tests.old_torch import dtypes_here
from tests.reader.recorded import Recording, counted

QUANTIZED = ("quint8", "qint8", "qint32")


def stored(tmp_path: Path, tensor: torch.Tensor) -> Series:
    dtype = str(tensor.dtype).removeprefix("torch.")
    width = tensor.element_size() // DTYPES[dtype].lanes
    bits = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    raw = bits.contiguous().view({1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}[width]).numpy()
    Recording(tmp_path).take(raw, dtype=dtype, shape=tuple(tensor.shape)).sealed()
    return probes.open(tmp_path)["acts", "fc1"]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", dtypes_here(name for name in DTYPES if name not in QUANTIZED))
def test_every_dtype_comes_back_as_the_same_tensor(dtype: str, tmp_path: Path) -> None:
    width = DTYPES[dtype].itemsize
    raw = torch.arange(6 * width, dtype=torch.uint8) % 2 if dtype == "bool" else torch.arange(6 * width, dtype=torch.uint8) * 7
    tensor = raw.view(getattr(torch, dtype)).reshape(2, 3)
    found = stored(tmp_path, tensor).torch()
    assert found.dtype == tensor.dtype
    assert found.shape == (1, 2, 3)
    assert torch.equal(found[0].reshape(-1).view(torch.uint8), raw)


@pytest.mark.parametrize("dtype", dtypes_here(name for name in DTYPES if name.startswith("float8")))
def test_numpy_has_the_exact_value_of_every_float8_code(dtype: str, tmp_path: Path) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(getattr(torch, dtype))
    np.testing.assert_array_equal(stored(tmp_path, codes).numpy()[0], codes.float().numpy())


def test_quantized_values_come_back_as_their_integers(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.array([-3, 4], "i1"), dtype="qint8").sealed()
    assert probes.open(tmp_path)["acts", "fc1"].torch().tolist() == [[-3, 4]]


def test_a_tensor_without_elements_keeps_its_shape(tmp_path: Path) -> None:
    assert stored(tmp_path, torch.empty(0, 3)).torch().shape == (1, 0, 3)


def test_a_tensor_belongs_to_the_caller(tmp_path: Path) -> None:
    series = stored(tmp_path, torch.zeros(3))
    series.torch().add_(1)
    assert series.torch().sum() == 0


def test_captures_of_one_shape_are_labelled_along_step(tmp_path: Path) -> None:
    counted(tmp_path, 2, dims=("batch", "stat"), coords={"stat": ["a", "b", "c"]}, attrs={"hook": "forward"})
    array = probes.open(tmp_path)["acts", "fc1"].xarray()
    assert array.dims == ("step", "batch", "stat")
    assert array.sel(stat="b").where(array["epoch"] == 1, drop=True)[:, 0].values.tolist() == [10, 11, 12, 13]
    assert array["global_step"].values.tolist() == [0, 1, 2, 3, 100, 101, 102, 103]
    assert array.attrs["hook"] == "forward"
    assert array.attrs["torch_dtype"] == "float32"


def test_captures_of_different_rows_are_labelled_along_their_rows(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((2, 3), "<f4"), dims=("batch", "x")).take(
        np.ones((1, 3), "<f4"), step=5, dims=("batch", "x")
    ).sealed()
    array = probes.open(tmp_path)["acts", "fc1"].xarray()
    assert array.dims == ("batch", "x")
    assert array["step"].values.tolist() == [0, 0, 5]


def test_captures_of_different_shapes_are_not_an_array(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((2, 3), "<f4")).take(np.ones((1, 2), "<f4"), step=5).sealed()
    for bridge in (Series.xarray, Series.torch):
        with pytest.raises(RaggedSeries):
            bridge(probes.open(tmp_path)["acts", "fc1"])


def test_axes_that_share_a_name_or_are_called_step_get_distinct_names(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((2, 2, 2), "<f4"), dims=("x", "x", "step")).sealed()
    assert probes.open(tmp_path)["acts", "fc1"].xarray().dims == ("step", "x", "x_1", "step_1")


@pytest.mark.parametrize(("package", "command"), [("torch", r"torch-probes\[torch\]"), ("xarray", r"torch-probes\[xarray\]")])
def test_a_missing_package_is_named_with_what_installs_it(
    package: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = probes.open(counted(tmp_path, 1))["acts", "fc1"]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=command):
        getattr(series, package)()
