"""Parquet and Arrow tables, read back by pyarrow, against the reader capture by capture."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probes
from probes.clock import SeriesKey
from probes.errors import UsageError
from probes.reader.export import arrow_file, long_table, wide_table
from probes.reader.run import RunReader
from probes.reader.series import Series
from tests.reader.recorded import Recording

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed; the extra `parquet` brings it")
parquet = pytest.importorskip("pyarrow.parquet")

STATS = ["mean", "max", "nan"]
CLOCK = ("epoch", "step", "global_step", "microstep", "call", "backward", "rank")


def key(probe: str, target: str = "fc", leaf: str = "output", phase: str = "train") -> SeriesKey:
    return SeriesKey(probe, target, leaf, phase)


@pytest.fixture
def run(tmp_path: Path) -> RunReader:
    """Labels, captures of several sizes and numbers of axes, an axis called `step`, bfloat16, float16, NaN, two phases, a changed dtype."""
    for epoch in range(2):
        recording = Recording(tmp_path / "run", epoch)
        for step in range(3):
            numbers = np.array([step + 0.5, math.inf, math.nan])
            recording.take(numbers, key=key("stats", 'h"\u00e9/%'), step=step, dims=("stat",), coords={"stat": STATS})
            recording.take(np.array(10.0 * epoch + step, "<f4"), key=key("norm", ""), step=step)
            recording.take(np.array(step, "<f4"), key=key("norm", "", phase="eval"), step=step, call=step)
            recording.take(np.full((2 + step, 3), step, "<f4"), key=key("acts"), step=step, dims=("step", "unit"))
            shape = (2 + step, 3) if step < 2 else (4,)
            recording.take(np.arange(math.prod(shape), dtype="<f4").reshape(shape), key=key("mixed"), step=step)
            recording.take(np.full((2, 2), 0x3F80 + step, "<u2"), dtype="bfloat16", key=key("half"), step=step)
            recording.take(np.full((1, 2), step, "<f2" if epoch else "<f4"), key=key("cast"), step=step)
        recording.take(np.zeros((0, 4), "<f4"), key=key("empty"))
        recording.sealed()
    return probes.open(tmp_path / "run")


def expected(series: Series) -> Iterator[tuple[Any, ...]]:
    """Each number of a series with its place, by plain loops."""
    for one in series.by_dtype():
        for capture in one:
            clock = capture.clock._asdict()
            for place in itertools.product(*map(range, capture.value.shape)):
                yield (*one.key, *(clock[name] for name in CLOCK), place, float(capture.value[place]))


def found(table: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a long table; the place is made of the index columns that the series has, and of the label."""
    axes = [name for name in table.column_names if name not in ("probe", "target", "leaf", "phase", *CLOCK, "label", "value")]
    for row in table.to_pylist():
        label = [STATS.index(row["label"])] if row.get("label") is not None else []
        place = tuple([row[axis] for axis in axes if row[axis] >= 0] + label)
        yield (*(row[name] for name in ("probe", "target", "leaf", "phase", *CLOCK)), place, row["value"])


def same(left: Iterable[Any], right: Iterable[Any]) -> None:
    assert sorted(map(repr, left)) == sorted(map(repr, right))


@pytest.mark.parametrize("rows", [1, 4, 1 << 18])
def test_the_long_form_has_each_number_of_the_reader_for_groups_of_any_size(
    run: RunReader, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_table, "ROWS", rows)
    run.export(tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    same(found(table), (row for one in run.series for row in expected(one)))
    assert {"step_1", "unit", "label"} <= set(table.column_names)
    assert table.schema.metadata[b"probes.run_id"] == b"r"


def test_pandas_and_the_arrow_file_have_the_table_of_the_reader(run: RunReader, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    run.export(tmp_path / "a.feather", "stats")
    pandas.testing.assert_frame_equal(pandas.read_feather(tmp_path / "a.feather"), run.frame("stats", "pandas"))
    polars = pytest.importorskip("polars", reason="polars is not installed; no extra brings it")
    run.export(tmp_path / "a.parquet", "stats")
    same(polars.read_parquet(tmp_path / "a.parquet").rows(), polars.read_ipc(tmp_path / "a.feather").rows())
    assert polars.from_arrow(run.match("stats").arrow()).height == 18


def test_the_wide_form_has_a_row_for_each_place_and_nulls_where_a_series_has_no_capture(
    run: RunReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_table, "CELLS", 8)
    run.export(tmp_path / "a.parquet", "{stats,norm,half}", wide=True)
    rows = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert [(row["phase"], row["epoch"], row["step"]) for row in rows] == [
        (phase, epoch, step) for phase in ("eval", "train") for epoch in range(2) for step in range(3)
    ]
    assert [row["norm/:output"] for row in rows] == [0, 1, 2, 0, 1, 2, 0, 1, 2, 10, 11, 12]
    assert [row['stats/h"\u00e9/%:output/mean'] for row in rows] == [None] * 6 + [0.5, 1.5, 2.5] * 2
    assert {row["half/fc:output/1/1"] for row in rows[6:]} == {1.0, 1.0078125, 1.015625}
    assert [row["call"] for row in rows] == [0, 1, 2, 0, 1, 2, *[0] * 6]


def test_a_dtype_that_changed_is_one_column_of_the_wide_form(run: RunReader, tmp_path: Path) -> None:
    run.export(tmp_path / "a.parquet", "cast", wide=True)
    assert parquet.read_table(tmp_path / "a.parquet")["cast/fc:output/0/1"].to_pylist() == [0, 1, 2] * 2


def test_integers_and_labels_that_are_numbers_keep_their_type(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run")
    recording.take(np.array([2**62 + 1, -1]), key=key("ids")).take(
        np.array([1, 2], "<f4"), key=key("q"), dims=("q",), coords={"q": [0.5, 0.9]}
    )
    recording.sealed()
    run = probes.open(tmp_path / "run")
    assert run.match("ids").arrow().read_all()["value"].to_pylist() == [2**62 + 1, -1]
    assert run.match("q").arrow().read_all()["label"].to_pylist() == [0.5, 0.9]
    with pytest.raises(UsageError, match=r"`ids/fc:output` holds the integer 4611686018427387905, which no float is equal to"):
        run.export(tmp_path / "a.parquet")
    assert not (tmp_path / "a.parquet").exists()


def test_values_that_a_table_cannot_hold_are_refused_with_another_format(
    run: RunReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"have the shapes \(2, 3\), \(3, 3\), \(4,\); the wide form takes one shape, the long form any"):
        run.export(tmp_path / "a.parquet", "mixed", wide=True)
    with pytest.raises(UsageError, match="`npz` has no wide form"):
        run.export(tmp_path / "a.npz", wide=True)
    with pytest.raises(UsageError, match=r"\"a.xls\" names no format that is known"):
        run.export(tmp_path / "a.xls")
    monkeypatch.setattr(wide_table, "MOST_COLUMNS", 2)
    with pytest.raises(UsageError, match="would have 3 columns, more than 2"):
        run.export(tmp_path / "a.parquet", "stats", wide=True)
    Recording(tmp_path / "c").take(np.array([1.0, 2.0]), dtype="complex128", shape=()).sealed()
    with pytest.raises(UsageError, match="holds `complex128`, and a table has no complex numbers"):
        probes.open(tmp_path / "c").export(tmp_path / "a.parquet")


def test_memory_is_that_of_a_group_and_not_of_the_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording(tmp_path / "run")
    for step in range(64):
        recording.take(np.full(1 << 14, step, "<f4"), step=step)
    recording.sealed()
    monkeypatch.setattr(long_table, "ROWS", 1 << 14)
    monkeypatch.setattr(arrow_file, "ROW_GROUP", 1 << 14)
    run = probes.open(tmp_path / "run")
    sizes = {}
    for name in ("a.npz", "a.safetensors", "a.arrow"):
        export = run.sel(step=slice(0, 16)) if name == "a.arrow" else run
        export.export(tmp_path / name)
        tracemalloc.start()
        export.export(tmp_path / name)
        sizes[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert max(sizes.values()) < 12 << 20, sizes
