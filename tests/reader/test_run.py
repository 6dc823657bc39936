import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import probes
from probes.capture_file.read import SealedFile
from probes.clock import SeriesKey
from probes.errors import AmbiguousSeries, FileRefused, SeriesNotFound, StorageError
from probes.reader.run import RunReader
from probes.reader.series import Series
from tests.reader.recorded import Recording, counted


def two_leaves(tmp_path: Path) -> RunReader:
    recording = Recording(tmp_path)
    for leaf, phase in [("output.logits", "train"), ("output.hidden", "train"), ("output.hidden", "eval")]:
        recording.take(np.zeros(2, "<f4"), key=SeriesKey("acts", "head", leaf, phase))
    recording.take(np.ones(2, "<f4"), key=SeriesKey("acts", "", "output", "train")).take(
        np.ones(2, "<f4"), key=SeriesKey("weights", "fc.weight", "grad", "train")
    ).sealed()
    return probes.open(tmp_path)


def test_a_run_lists_its_probes_targets_and_leaves(tmp_path: Path) -> None:
    run = two_leaves(tmp_path)
    assert run.probes == list(run) == ["acts", "weights"]
    assert run["acts"] == {"": ("output",), "head": ("output.hidden", "output.logits")}
    assert [series.word for series in run.series][:3] == ["acts/:output", "acts/head:output.hidden@eval", "acts/head:output.hidden"]


def test_a_series_is_named_by_probe_target_and_leaf(tmp_path: Path) -> None:
    run = two_leaves(tmp_path)
    assert run["acts", ""].key == SeriesKey("acts", "", "output", "train")
    assert run["acts", "head", "output.logits"].key.leaf == "output.logits"
    assert run.sel(phase="eval")["acts", "head"].key == SeriesKey("acts", "head", "output.hidden", "eval")


@pytest.mark.parametrize(
    "name", ["acts", ("acts", ""), ("acts", "head"), ("acts", "head", "output.logits"), ("acts", "h*"), ("weights", "*.weight")]
)
def test_a_name_that_the_run_finds_is_in_the_run(name: str | tuple[str, ...], tmp_path: Path) -> None:
    assert name in two_leaves(tmp_path)


@pytest.mark.parametrize("name", ["act", "acts/head", ("acts", "tail"), ("acts", "head", "output"), ("acts", "t*"), ("acts",), 0, None])
def test_a_name_that_the_run_does_not_find_is_not_in_the_run(name: object, tmp_path: Path) -> None:
    assert name not in two_leaves(tmp_path)


def test_an_ambiguous_name_is_refused_with_all_it_could_be(tmp_path: Path) -> None:
    run = two_leaves(tmp_path)
    with pytest.raises(AmbiguousSeries, match=r"acts/head:output\.hidden@eval\n.*acts/head:output\.hidden\n.*acts/head:output\.logits"):
        run["acts", "head"]
    with pytest.raises(AmbiguousSeries, match=r'2 series fit; they differ in phase: .* `\.sel\(phase="eval"\)`'):
        run["acts", "head", "output.hidden"]


def test_a_series_whose_name_has_a_line_break_is_listed_on_one_line(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    for target in ("a\nb", "c"):
        recording.take(np.zeros(2, "<f4"), key=SeriesKey("acts", target, "output", "train"))
    recording.sealed()
    with pytest.raises(AmbiguousSeries) as refused:
        probes.open(tmp_path).find("acts")
    assert len(str(refused.value).split("\n")) == 3


def test_a_capture_file_is_read_under_any_name_and_another_file_is_not_called_a_journal(tmp_path: Path) -> None:
    path = two_leaves(tmp_path).path / "epoch-0000.h5"
    renamed = path.rename(tmp_path / "first.hdf5")
    run = probes.open(renamed)
    assert run.state == {0: "complete"}
    assert run["acts", ""].numpy().shape[0] == len(run["acts", ""])
    assert run.captures_roots
    (tmp_path / "train.py").write_text("import torch\n")
    with pytest.raises(FileRefused, match=r'not-hdf5\]: "[^"]*train\.py" is not an HDF5 file'):
        _ = probes.open(tmp_path / "train.py").series


def test_advice_on_an_ambiguous_name_lists_the_differences_of_the_series(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    for target in range(30):
        recording.take(np.zeros(2, "<f4"), key=SeriesKey("acts", f"blocks.{target}", "output", "train"))
    recording.sealed()
    with pytest.raises(AmbiguousSeries) as refused:
        probes.open(tmp_path).find("acts")
    said = str(refused.value).split("\n")
    assert said[0] == "30 series fit; they differ in module or parameter: give the name of one, or take all with the pattern `acts/**`"
    assert (len(said), said[-1]) == (22, "  ... and 10 more")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (("act", "head"), "did you mean `acts`?"),
        (("acts", "heads"), "did you mean `head`?"),
        (("acts", "head", "output.logit"), r"did you mean `output\.logits`?"),
        (("weights", "nothing-like-it"), r"there is `fc\.weight`"),
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
    with pytest.raises(
        AmbiguousSeries,
        match=r'`float16` and `float32`; choose one by the name `acts/fc1:output~float16`, or with `\.sel\(dtype="float16"\)`',
    ):
        run["acts", "fc1"].numpy()
    assert run.sel(dtype="float16")["acts", "fc1"].numpy().tolist() == [[1, 1]]
    assert run["acts", "fc1"].sel(dtype="float32").numpy().tolist() == [[0, 0]]
    assert run.find("acts/fc1:output~float16").dtype == "float16"


def test_a_dtype_that_changes_between_epochs_has_to_be_chosen(tmp_path: Path) -> None:
    Recording(tmp_path, 0).take(np.zeros(2, "<f4")).sealed()
    Recording(tmp_path, 1).take(np.ones(2, "<f2")).sealed()
    with pytest.raises(AmbiguousSeries, match="`float16` and `float32`"):
        probes.open(tmp_path)["acts", "fc1"].numpy()


def test_a_second_dtype_may_be_the_first_in_another_epoch(tmp_path: Path) -> None:
    Recording(tmp_path, 0).take(np.zeros(2, "<f4")).take(np.ones(2, "<f2"), step=1).sealed()
    Recording(tmp_path, 1).take(np.full(2, 2, "<f2")).take(np.full(2, 3, "<f4"), step=1).sealed()
    series = probes.open(tmp_path)["acts", "fc1"].sel(dtype="float16")
    assert series.numpy()[:, 0].tolist() == [1, 2]


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    counted(tmp_path, 1)
    program = (
        "import sys, probes\n"
        "assert not {'numpy', 'h5py', 'torch'} & set(sys.modules)\n"
        "probes.open(sys.argv[1])['acts', 'fc1'].numpy()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


def test_the_object_of_open_is_shown_in_one_line_and_has_another_name_than_the_live_run(tmp_path: Path) -> None:
    run = two_leaves(tmp_path)

    assert type(run).__name__ == "RunReader"
    assert repr(run) == f'<RunReader "{tmp_path}": 1 epoch>'


def test_a_run_directory_has_no_links_and_a_single_file_may_be_a_link(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere.h5"
    run.mkdir()
    Recording(run).take(np.zeros(2)).sealed()
    (run / "epoch-0000.h5").rename(elsewhere)
    (run / "epoch-0000.h5").symlink_to(elsewhere)
    with pytest.raises(FileRefused, match="is a link"):
        probes.open(run)["acts", "fc1"].numpy()
    assert probes.open(run / "epoch-0000.h5")["acts", "fc1"].numpy().shape == (1, 2)


def test_a_journal_that_is_a_link_is_refused(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere.journal"
    run.mkdir()
    Recording(run).take(np.zeros(2)).left()
    (run / "epoch-0000.journal").rename(elsewhere)
    (run / "epoch-0000.journal").symlink_to(elsewhere)
    with pytest.raises(FileRefused, match="is a link"):
        probes.open(run)["acts", "fc1"].numpy()


def test_a_series_is_pickled_with_its_selection(tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    series = run.sel(epoch=slice(1, None))["acts", "fc1"]
    expected = series.numpy()
    for sent in (series, run.match("**").sel(epoch=[1, 2])[0], run.match("**").sel(epoch=[1, 2])):
        received = pickle.loads(pickle.dumps(sent))
        np.testing.assert_array_equal((received if isinstance(received, Series) else received[0]).numpy(), expected)


def test_captures_are_taken_by_ranges_of_positions(tmp_path: Path) -> None:
    series = probes.open(counted(tmp_path, 1))["acts", "fc1"]
    assert [one.clock.step for one in series[1:3]] == [1, 2]
    assert [one.clock.step for one in series[::-2]] == [3, 1]
    assert series[9:] == []


def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r'^"[^"]*" cannot be read: [^:]*$'):
        SealedFile(tmp_path / "none.h5")
