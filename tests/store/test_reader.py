import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import probes
from probes.clock import Clock, SeriesKey
from probes.errors import AmbiguousSeries, FileRefused, RaggedSeries, SeriesNotFound, StorageError, UsageError
from probes.store import directory as directory_module
from probes.store.reader import Run
from tests.store import handmade
from tests.store.recorded import Recording, counted


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


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"epoch": 1}, [10, 11, 12, 13]),
        ({"epoch": [0, 2], "step": 3}, [3, 23]),
        ({"epoch": slice(1, 3), "step": slice(0, 4, 2)}, [10, 12, 20, 22]),
        ({"step": slice(None, 1)}, [0, 10, 20]),
        ({"step": slice(3, None)}, [3, 13, 23]),
        ({"epoch": np.int64(2), "step": np.arange(2)}, [20, 21]),
        ({"phase": "train", "dtype": "float32", "rank": 0, "epoch": 0}, [0, 1, 2, 3]),
    ],
)
def test_a_selection_goes_by_the_clock(asked: dict, expected: list[int], tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    assert run.sel(**asked)["acts", "fc1"].numpy()[:, 0, 0].tolist() == expected
    narrowed = {name: value for name, value in asked.items() if name != "phase"}
    assert run["acts", "fc1"].sel(**narrowed).numpy()[:, 0, 0].tolist() == expected


def test_selections_add_up_but_a_coordinate_is_chosen_once(tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    assert run.sel(epoch=1)["acts", "fc1"].sel(step=2).numpy()[0, 0, 0] == 12
    with pytest.raises(UsageError, match="`epoch` is chosen already"):
        run.sel(epoch=1).sel(epoch=2)


@pytest.mark.parametrize("step", ["3", True, -1, slice(-3, None), slice(0, 4, -1), 1.5, [0.5]])
def test_a_selection_that_is_no_number_is_refused(step: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`step`"):
        probes.open(counted(tmp_path, 1)).sel(step=step)


def test_a_selection_that_hits_nothing_says_what_there_is(tmp_path: Path) -> None:
    series = probes.open(counted(tmp_path))["acts", "fc1"].sel(step=99)
    assert len(series) == 0
    with pytest.raises(SeriesNotFound, match="epochs 0 to 2 and steps 0 to 3"):
        series.numpy()


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


def test_captures_come_in_the_order_of_the_clock_not_of_their_arrival(tmp_path: Path) -> None:
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
    with pytest.raises(RaggedSeries, match=r"; iterating gives one after the other"):
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
def test_complex_numbers_come_back_whole(dtype: str, numpy: str, rows: tuple[int, int], tmp_path: Path) -> None:
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


def two_leaves(tmp_path: Path) -> Run:
    recording = Recording(tmp_path)
    for leaf, phase in [("output.logits", "train"), ("output.hidden", "train"), ("output.hidden", "eval")]:
        recording.take(np.zeros(2, "<f4"), key=SeriesKey("acts", "head", leaf, phase))
    recording.take(np.ones(2, "<f4"), key=SeriesKey("acts", "", "output", "train")).take(
        np.ones(2, "<f4"), key=SeriesKey("weights", "fc.weight", "grad", "train")
    ).sealed()
    return probes.open(tmp_path)


def test_a_run_tells_its_probes_targets_and_leaves(tmp_path: Path) -> None:
    run = two_leaves(tmp_path)
    assert run.probes == ["acts", "weights"]
    assert run["acts"] == {"": ("output",), "head": ("output.hidden", "output.logits")}
    assert [series.word for series in run.series][:3] == ["acts/:output", "acts/head:output.hidden@eval", "acts/head:output.hidden"]


def test_a_series_is_named_by_probe_target_and_leaf(tmp_path: Path) -> None:
    run = two_leaves(tmp_path)
    assert run["acts", ""].key == SeriesKey("acts", "", "output", "train")
    assert run["acts", "head", "output.logits"].key.leaf == "output.logits"
    assert run.sel(phase="eval")["acts", "head"].key == SeriesKey("acts", "head", "output.hidden", "eval")


def test_an_ambiguous_name_is_refused_with_all_it_could_be(tmp_path: Path) -> None:
    run = two_leaves(tmp_path)
    with pytest.raises(AmbiguousSeries, match=r"acts/head:output\.hidden@eval\n.*acts/head:output\.hidden\n.*acts/head:output\.logits"):
        run["acts", "head"]
    with pytest.raises(AmbiguousSeries, match=r"\.sel\(phase="):
        run["acts", "head", "output.hidden"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (("act", "head"), "did you mean `acts`?"),
        (("acts", "heads"), "did you mean `head`?"),
        (("acts", "head", "output.logit"), r"did you mean `output\.logits`?"),
        (("weights", "nothing-like-it"), r'there is "fc\.weight"'),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: tuple[str, ...], hint: str, tmp_path: Path) -> None:
    with pytest.raises(SeriesNotFound, match=hint.replace("?", r"\?")):
        two_leaves(tmp_path)[name]


@pytest.mark.parametrize(
    "word", ["acts/:output", "acts/head:output.logits", "acts/head:output.hidden@eval", "weights", "weights/fc.weight", "weights~float32"]
)
def test_a_word_finds_its_series(word: str, tmp_path: Path) -> None:
    found = two_leaves(tmp_path).find(word)
    assert found.word.startswith(word.partition("~")[0])


def test_every_word_that_is_printed_finds_its_series_again(tmp_path: Path) -> None:
    keys = [
        SeriesKey("acts", target, "output", phase)
        for target in ("", "a/b", "a:b", "a@b", "ü~ %41", ".")
        for phase in ("train", "eval", "x@y")
    ]
    recording = Recording(tmp_path)
    for number, key in enumerate(keys):
        recording.take(np.array([number], "<i8"), key=key)
    recording.sealed()
    run = probes.open(tmp_path)
    assert {series.key for series in run.series} == set(keys)
    for series in run.series:
        assert run.find(series.word).key == series.key
        assert series.numpy().item() == keys.index(series.key)


def test_a_second_dtype_has_to_be_chosen(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros(2, "<f4")).take(np.ones(2, "<f2"), step=1).sealed()
    run = probes.open(tmp_path)
    with pytest.raises(AmbiguousSeries, match=r'float16 and float32; choose with \.sel\(dtype="float16"\)'):
        run["acts", "fc1"].numpy()
    assert run.sel(dtype="float16")["acts", "fc1"].numpy().tolist() == [[1, 1]]
    assert run["acts", "fc1"].sel(dtype="float32").numpy().tolist() == [[0, 0]]
    assert run.find("acts/fc1:output~float16").dtype == "float16"


def test_a_dtype_that_changes_between_epochs_has_to_be_chosen(tmp_path: Path) -> None:
    Recording(tmp_path, 0).take(np.zeros(2, "<f4")).sealed()
    Recording(tmp_path, 1).take(np.ones(2, "<f2")).sealed()
    with pytest.raises(AmbiguousSeries, match="float16 and float32"):
        probes.open(tmp_path)["acts", "fc1"].numpy()


def test_a_second_dtype_may_be_the_first_in_another_epoch(tmp_path: Path) -> None:
    Recording(tmp_path, 0).take(np.zeros(2, "<f4")).take(np.ones(2, "<f2"), step=1).sealed()
    Recording(tmp_path, 1).take(np.full(2, 2, "<f2")).take(np.full(2, 3, "<f4"), step=1).sealed()
    series = probes.open(tmp_path)["acts", "fc1"].sel(dtype="float16")
    assert series.numpy()[:, 0].tolist() == [1, 2]


def test_names_and_labels_of_axes_are_in_the_signature(tmp_path: Path) -> None:
    coords = {"stat": ("mean", "std")}
    Recording(tmp_path).take(np.zeros(2, "<f4"), dims=("stat",), coords=coords, attrs={"hook": "forward"}).sealed()
    series = probes.open(tmp_path)["acts", "fc1"]
    assert str(series.signature) == "float32[stat=2]"
    assert series.signature.coords == coords
    assert series.attrs == {"hook": "forward"}


def test_ids_stand_beside_the_rows(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    for step, size in enumerate((3, 2)):
        recording.take(np.full((size, 1), step, "<f4"), step=step).ids(step, [f"s{step}{row}" for row in range(size)])
    recording.sealed()
    series = probes.open(tmp_path)["acts", "fc1"]
    assert series.ids.tolist() == ["s00", "s01", "s02", "s10", "s11"]
    assert series.sel(step=1).ids.tolist() == ["s10", "s11"]


def test_ids_of_a_step_are_shared_out_over_its_microsteps(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((2, 1), "<f4")).take(np.zeros((1, 1), "<f4"), microstep=1).ids(0, [7, 8, 9]).sealed()
    assert probes.open(tmp_path)["acts", "fc1"].ids.tolist() == [7, 8, 9]


def test_rows_that_are_no_samples_have_no_ids(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((4, 1), "<f4")).ids(0, [7, 8, 9]).sealed()
    with pytest.raises(RaggedSeries, match="3 samples and captures of 4 rows"):
        _ = probes.open(tmp_path)["acts", "fc1"].ids


def test_a_run_without_ids_says_how_to_give_them(tmp_path: Path) -> None:
    with pytest.raises(SeriesNotFound, match=r"run\.steps\(loader, ids=\.\.\.\)"):
        _ = probes.open(counted(tmp_path, 1))["acts", "fc1"].ids


def test_a_mask_keeps_the_places_where_it_is_true(tmp_path: Path) -> None:
    mask_key = SeriesKey("ids", "", "input.mask", "train")
    recording = Recording(tmp_path)
    for step in range(2):
        recording.take(np.arange(12, dtype="<f4").reshape(2, 3, 2) + 100 * step, step=step)
        recording.take(np.array([[1, 0, 0], [1, 1, 0]]) * (1 - step), key=mask_key, step=step)
    recording.sealed()
    run = probes.open(tmp_path)
    assert run["acts", "fc1"].rows(mask=run["ids", ""]).tolist() == [[0, 1], [6, 7], [8, 9]]
    with pytest.raises(RaggedSeries, match="has no capture at"):
        run["acts", "fc1"].rows(mask=run["ids", ""].sel(step=0))


def test_the_highest_attempt_counts(tmp_path: Path) -> None:
    Recording(tmp_path, 0).take(np.zeros(1, "<f4")).sealed(complete=False)
    Recording(tmp_path, 0, attempt=2).take(np.ones(1, "<f4")).sealed()
    run = probes.open(tmp_path)
    assert run["acts", "fc1"].numpy().tolist() == [[1]]
    assert [(attempt.attempt, attempt.state, attempt.current) for attempt in run.attempts] == [
        (1, "incomplete", False),
        (2, "complete", True),
    ]


@pytest.mark.parametrize("left", ["sealed", "left"])
def test_an_incomplete_attempt_never_supersedes_a_complete_one(left: str, tmp_path: Path) -> None:
    Recording(tmp_path, 0).take(np.zeros(1, "<f4")).sealed()
    later = Recording(tmp_path, 0, attempt=2).take(np.ones(1, "<f4"))
    later.sealed(complete=False) if left == "sealed" else later.left()
    assert probes.open(tmp_path)["acts", "fc1"].numpy().tolist() == [[0]]


def test_a_journal_is_read_where_no_file_has_been_built_of_it(tmp_path: Path) -> None:
    counted(tmp_path, 2)
    Recording(tmp_path, 2).take(np.full((2, 3), 20, "<f4")).take(np.full((2, 3), 21, "<f4"), step=1).ids(0, [1, 2]).left()
    before = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    run = probes.open(tmp_path)
    assert run.state == {0: "complete", 1: "complete", 2: "unsealed"}
    assert run["acts", "fc1"].sel(step=1).numpy()[:, 0, 0].tolist() == [1, 11, 21]
    assert run.sel(epoch=2)["acts", "fc1"][0].clock.global_step == 200
    assert run["acts", "fc1"].sel(epoch=2, step=0).ids.tolist() == [1, 2]
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())


def test_a_journal_and_its_file_read_the_same(tmp_path: Path) -> None:
    recordings = [Recording(tmp_path / name) for name in ("journal", "file")]
    for recording in recordings:
        for step, shape in enumerate([(2, 3), (1, 3), (4,), (2, 3)]):
            recording.take(np.random.default_rng(step).normal(size=shape).astype("<f4"), step=step, call=step % 2)
        recording.take(np.ones(2, "<f2"), step=9).take(np.zeros(0, "<f4"), key=SeriesKey("b", "x", "grad", "eval"))
    recordings[0].left()
    recordings[1].sealed()
    journal, file = (probes.open(tmp_path / name) for name in ("journal", "file"))
    assert [series.word for series in journal.series] == [series.word for series in file.series]
    for one, other in zip(journal.series, file.series, strict=True):
        for dtype in one.dtypes:
            for left, right in zip(one.sel(dtype=dtype), other.sel(dtype=dtype), strict=True):
                assert left.clock == right.clock
                np.testing.assert_array_equal(left.value, right.value)


def test_a_journal_that_is_sealed_meanwhile_is_never_misread(tmp_path: Path) -> None:
    recording = Recording(tmp_path).take(np.zeros(4, "<f4"))
    path = recording.left()
    series = probes.open(tmp_path)["acts", "fc1"]
    assert series.numpy().tolist() == [[0, 0, 0, 0]]
    path.rename(tmp_path / "spare.journal")
    with pytest.raises(StorageError, match="was sealed or removed while it was read"):
        series.numpy()


def test_a_file_that_no_ledger_names_is_not_shown(tmp_path: Path) -> None:
    counted(tmp_path, 1)
    handmade.write(tmp_path / "epoch-0007.h5", epoch=7)
    assert probes.open(tmp_path).epochs == [0]


def test_a_ledger_line_without_its_end_is_not_an_entry(tmp_path: Path) -> None:
    counted(tmp_path, 2)
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-20])
    assert probes.open(tmp_path).epochs == [0]


@pytest.mark.parametrize("line", ['{"file": "../../etc/passwd"}', "[]", "{", '{"file": "/epoch-0000.h5"}'])
def test_a_ledger_that_names_something_else_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_text(line + "\n")
    with pytest.raises(FileRefused) as refused:
        _ = probes.open(tmp_path).epochs
    assert refused.value.code == "bad-ledger"


def test_ranks_stand_one_after_the_other_and_can_be_chosen(tmp_path: Path) -> None:
    for rank in range(2):
        Recording(tmp_path, 0, rank=rank).take(np.full(1, rank, "<f4")).sealed()
    run = probes.open(tmp_path)
    assert run["acts", "fc1"].rows().tolist() == [0, 1]
    assert run.sel(rank=1)["acts", "fc1"].rows().tolist() == [1]
    assert run["acts", "fc1"].clocks["rank"].tolist() == [0, 1]


def test_one_file_alone_is_a_run(tmp_path: Path) -> None:
    counted(tmp_path, 3)
    run = probes.open(tmp_path / "epoch-0002.h5")
    assert run.epochs == [2]
    assert run.manifest["run_id"] == "r"
    assert run["acts", "fc1"].numpy()[0, 0, 0] == 20


def test_the_spec_is_read_from_beside_or_from_within(tmp_path: Path) -> None:
    counted(tmp_path, 1)
    Recording(tmp_path, 1).take(np.zeros(1, "<f4")).left()
    for path in (tmp_path, tmp_path / "epoch-0000.h5", tmp_path / "epoch-0001.journal"):
        assert probes.open(path).spec == "version: 1\n"
    (tmp_path / "spec.yaml").write_text("version: 1  # as written\n")
    assert probes.open(tmp_path).spec == "version: 1  # as written\n"


def test_a_journal_that_was_only_just_begun_holds_nothing(tmp_path: Path) -> None:
    counted(tmp_path, 1)
    path = Recording(tmp_path, 0, attempt=2).left()
    path.write_bytes(path.read_bytes()[:40])
    assert probes.open(tmp_path)["acts", "fc1"].numpy().shape == (4, 2, 3)


def test_one_journal_alone_is_a_run(tmp_path: Path) -> None:
    path = Recording(tmp_path, 3).take(np.zeros(1, "<f4")).left()
    assert probes.open(path).state == {3: "unsealed"}


def test_a_directory_of_runs_is_its_newest_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("20261120T000000Z-aaaa", "20261121T000000Z-0000"):
        counted(tmp_path / name, 1)
    run = probes.open(tmp_path)
    assert run.path.name == "20261121T000000Z-0000"
    assert "20261121T000000Z-0000" in capsys.readouterr().err


def test_a_place_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="holds no run"):
        probes.open(tmp_path)
    with pytest.raises(StorageError, match="does not exist"):
        probes.open(tmp_path / "none")


def test_an_epoch_without_captures_is_an_epoch(tmp_path: Path) -> None:
    Recording(tmp_path, 0).sealed()
    run = probes.open(tmp_path)
    assert (run.epochs, run.probes) == ([0], [])
    with pytest.raises(SeriesNotFound, match="nothing was captured"):
        run["acts"]


def test_opening_a_run_opens_no_file_of_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    sealed_file = directory_module.SealedFile
    monkeypatch.setattr(directory_module, "SealedFile", lambda path: opened.append(path.name) or sealed_file(path))
    run = probes.open(counted(tmp_path, 3))
    assert run.epochs == [0, 1, 2]
    assert opened == []
    run.sel(epoch=1)["acts", "fc1"].numpy()
    assert opened == ["epoch-0001.h5"]


def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module, "OPEN_FILES", 2)
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("needs /proc")
    counted(tmp_path, 12, 1)
    before = len(list(descriptors.iterdir()))
    captures = list(probes.open(tmp_path)["acts", "fc1"])
    assert len(captures) == 12
    assert len(list(descriptors.iterdir())) <= before + 2 * 3


def test_h5py_and_xarray_may_have_the_same_file_open(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    run = probes.open(counted(tmp_path, 1))
    before = run["acts", "fc1"].numpy()
    path = tmp_path / "epoch-0000.h5"
    with xarray.open_dataset(path, group="captures/acts/fc1:output", engine="h5netcdf") as found:
        np.testing.assert_array_equal(found["values"], before)
    with h5py.File(path) as file:
        again = probes.open(tmp_path)["acts", "fc1"]
        np.testing.assert_array_equal(again.numpy(), file["captures/acts/fc1:output/values"])
    np.testing.assert_array_equal(run["acts", "fc1"].sel(step=1).numpy(), before[1:2])
    assert run.sel(phase="train")["acts", "fc1"].attrs == {}


def test_many_runs_are_read_as_one(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    counted(tmp_path / "sweep" / "a", 2)
    counted(tmp_path / "sweep" / "b", 1)
    (tmp_path / "sweep" / "a" / "run.json").write_text('{"tags": {"lr": "0.1"}}')
    runs = probes.open_all(tmp_path / "sweep")
    assert list(runs) == ["a", "b"]
    array = runs["acts", "fc1"].xarray()
    assert array.sizes == {"run": 2, "step": 8, "dim_0": 2, "dim_1": 3}
    assert array.sel(run="a")[:, 0, 0].values.tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
    assert np.isnan(array.sel(run="b")[4:]).all()
    assert array["lr"].values.tolist() == ["0.1", ""]
    assert runs.sel(epoch=0)["acts", "fc1"].xarray().dtype == np.float32


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    counted(tmp_path, 1)
    program = (
        "import sys, probes\n"
        "assert not {'numpy', 'h5py', 'torch'} & set(sys.modules)\n"
        "probes.open(sys.argv[1])['acts', 'fc1'].numpy()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
