from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probes
from probes.clock import Clock
from probes.errors import RaggedSeries, UsageError
from tests.reader.recorded import Recording, counted


def test_several_epochs_are_one_array(tmp_path: Path) -> None:
    series = probes.open(counted(tmp_path))["acts", "fc1"]
    assert series.numpy().shape == (12, 2, 3)
    assert series.numpy()[:, 0, 0].tolist() == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
    assert series.rows().shape == (24, 3)
    assert len(series) == 12
    assert series.nbytes == 12 * 24


def test_arrays_belong_to_the_caller(tmp_path: Path) -> None:
    series = probes.open(counted(tmp_path))["acts", "fc1"]
    for array in (series.numpy(), series.rows(), series[0].value, series.bits()):
        array[...] = 7
    assert series.numpy()[0, 0, 0] == 0


def test_captures_come_one_by_one_with_their_clocks(tmp_path: Path) -> None:
    Recording(tmp_path, 2).take(np.zeros(3, "<f4"), step=5, microstep=1, call=2, backward=3).sealed()
    (capture,) = probes.open(tmp_path)["acts", "fc1"]
    assert capture.clock == Clock(2, "train", 5, 205, 1, 2, 3, 0)
    assert capture.value.tolist() == [0, 0, 0]


def test_a_capture_is_found_by_its_position(tmp_path: Path) -> None:
    series = probes.open(counted(tmp_path))["acts", "fc1"]
    assert series[5].value[0, 0] == 11
    assert series[-1].clock[:3] == (2, "train", 3)
    assert series.sel(step=3)[1].value[0, 0] == 13
    with pytest.raises(IndexError):
        series[12]


def test_a_position_may_be_an_integer_of_numpy(tmp_path: Path) -> None:
    series = probes.open(counted(tmp_path))["acts", "fc1"]
    assert series[np.int64(-1)].value.tolist() == series[-1].value.tolist()


@pytest.mark.parametrize("index", [[0, 2], np.array([True, False]), np.array([3, 1]), (0, 1), "fc1", 1.0, True, np.True_, None, ...])
def test_another_index_than_a_position_is_refused_with_what_takes_it(index: Any, tmp_path: Path) -> None:
    series = probes.open(counted(tmp_path))["acts", "fc1"]
    with pytest.raises(UsageError, match=r"position of a capture or a slice, not .*`series\.sel\(.*`series\.numpy\(\)\[\.\.\.\]`"):
        series[index]


def test_captures_are_in_the_order_of_the_clock_and_not_of_their_arrival(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    for step, microstep in [(1, 0), (0, 1), (0, 0)]:
        recording.take(np.array([step, microstep], "<i8"), step=step, microstep=microstep)
    recording.sealed()
    assert probes.open(tmp_path)["acts", "fc1"].numpy().tolist() == [[0, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd", "blosc2"])
@pytest.mark.parametrize(
    "shapes", [[(4, 300)] * 3, [(4, 300), (1, 300)], [(2, 3), (3, 2), (300, 500)], [()] * 3, [(0, 3)] * 2, [(7,), (2, 2)]]
)
def test_every_layout_and_compression_reads_the_same(shapes: list[tuple[int, ...]], compression: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = [random.normal(size=shape).astype("<f4") for shape in shapes]
    recording = Recording(tmp_path)
    for step, value in enumerate(values):
        recording.take(value, step=step)
    recording.sealed(compression=compression)
    series = probes.open(tmp_path)["acts", "fc1"]
    for capture, value in zip(series, values, strict=True):
        np.testing.assert_array_equal(capture.value, value)
        assert capture.value.shape == value.shape
    np.testing.assert_array_equal(series[1].value, values[1])


def test_rows_hide_whether_the_last_batch_was_full(tmp_path: Path) -> None:
    whole = np.arange(10, dtype="<f4")
    Recording(tmp_path / "even").take(whole[:5], step=0).take(whole[5:], step=1).sealed()
    Recording(tmp_path / "odd").take(whole[:7], step=0).take(whole[7:], step=1).sealed()
    for name in ("even", "odd"):
        assert probes.open(tmp_path / name)["acts", "fc1"].rows().tolist() == whole.tolist()
    with pytest.raises(RaggedSeries, match=r"\(3,\), \(7,\); \.rows\(\) joins them"):
        probes.open(tmp_path / "odd")["acts", "fc1"].numpy()


def test_captures_of_other_shapes_are_only_iterated(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((2, 3), "<f4")).take(np.zeros((2, 4), "<f4"), step=1).sealed()
    series = probes.open(tmp_path)["acts", "fc1"]
    with pytest.raises(RaggedSeries, match=r"; iteration gives one after the other"):
        series.rows()
    assert [capture.value.shape for capture in series] == [(2, 3), (2, 4)]
    assert series.signature.shape == (2, None)


def test_the_shape_may_change_between_epochs(tmp_path: Path) -> None:
    Recording(tmp_path, 0).take(np.zeros((4, 3), "<f4")).sealed()
    Recording(tmp_path, 1).take(np.ones((2, 3), "<f4")).sealed()
    series = probes.open(tmp_path)["acts", "fc1"]
    assert series.rows().shape == (6, 3)
    assert series.sel(epoch=1).numpy().shape == (1, 2, 3)


def test_rows_of_scalars_are_one_for_each_capture(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.array(1.5)).take(np.array(2.5), step=1).sealed()
    series = probes.open(tmp_path)["acts", "fc1"]
    assert series.rows().tolist() == series.numpy().tolist() == [1.5, 2.5]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64"])
def test_dtypes_that_numpy_has_come_back_as_they_are(dtype: str, tmp_path: Path) -> None:
    value = np.array([[0, 1], [1, 0]]).astype(dtype)
    Recording(tmp_path).take(value).sealed()
    found = probes.open(tmp_path)["acts", "fc1"].numpy()
    assert found.dtype == dtype
    np.testing.assert_array_equal(found[0], value)


def test_all_bfloat16_values_come_back_as_float32_and_as_bits(tmp_path: Path) -> None:
    bits = np.arange(1 << 16, dtype="<u2")
    Recording(tmp_path).take(bits, dtype="bfloat16").sealed()
    series = probes.open(tmp_path)["acts", "fc1"]
    np.testing.assert_array_equal(series.bits()[0], bits)
    assert series.numpy().dtype == np.float32
    np.testing.assert_array_equal(series.numpy()[0].view("<u4") >> 16, bits)


@pytest.mark.parametrize(("dtype", "numpy"), [("complex32", "complex64"), ("complex64", "complex64"), ("complex128", "complex128")])
@pytest.mark.parametrize("rows", [(2, 2), (2, 1)])
def test_complex_numbers_are_read_completely(dtype: str, numpy: str, rows: tuple[int, int], tmp_path: Path) -> None:
    lane = {"complex32": "<f2", "complex64": "<f4", "complex128": "<f8"}[dtype]
    recording = Recording(tmp_path)
    for step, count in enumerate(rows):
        pairs = np.arange(6 * count).astype(lane).reshape(count, 3, 2)
        recording.take(pairs, dtype=dtype, shape=(count, 3), step=step)
    recording.sealed()
    found = probes.open(tmp_path)["acts", "fc1"].rows()
    assert found.dtype == numpy
    assert found.shape == (sum(rows), 3)
    assert found[0].tolist() == [0 + 1j, 2 + 3j, 4 + 5j]


def test_names_and_labels_of_axes_are_in_the_signature(tmp_path: Path) -> None:
    coords = {"stat": ("mean", "std")}
    Recording(tmp_path).take(np.zeros(2, "<f4"), dims=("stat",), coords=coords, attrs={"hook": "forward"}).sealed()
    series = probes.open(tmp_path)["acts", "fc1"]
    assert str(series.signature) == "float32[stat=2]"
    assert series.signature.coords == coords
    assert series.attrs == {"hook": "forward"}


def test_labels_too_large_for_an_attribute_are_read_too(tmp_path: Path) -> None:
    labels = tuple(f"a label of some length {number}" for number in range(5000))
    Recording(tmp_path).take(np.zeros(5000, "<f4"), dims=("neuron",), coords={"neuron": labels}).sealed()
    assert probes.open(tmp_path)["acts", "fc1"].signature.coords == {"neuron": labels}
