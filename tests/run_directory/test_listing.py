import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest

import probes
from probes.capture_file import read
from probes.clock import SeriesKey
from probes.errors import FileRefused, SeriesNotFound, StorageError
from probes.run_directory import listing as directory_module
from probes.run_directory.listing import directory_at
from probes.run_directory.search import run_directories
from tests.descriptors import open_below
from tests.journal import handmade
from tests.reader.recorded import Recording, counted


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


def test_a_journal_without_a_sealed_file_is_read(tmp_path: Path) -> None:
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
    assert series.numpy().tolist() == [[0, 0, 0, 0]], "its bytes are still there"
    (tmp_path / "spare.journal").write_bytes(bytes(100_000))
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
def test_a_ledger_that_names_another_file_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_text(line + "\n")
    with pytest.raises(FileRefused) as refused:
        _ = probes.open(tmp_path).epochs
    assert refused.value.code == "ledger-edited"


def test_ranks_are_listed_in_order_and_can_be_selected(tmp_path: Path) -> None:
    for rank in range(2):
        Recording(tmp_path, 0, rank=rank).take(np.full(1, rank, "<f4")).sealed()
    run = probes.open(tmp_path)
    assert run["acts", "fc1"].rows().tolist() == [0, 1]
    assert run.sel(rank=1)["acts", "fc1"].rows().tolist() == [1]
    assert run["acts", "fc1"].clocks["rank"].tolist() == [0, 1]


@pytest.mark.parametrize("left", ["sealed", "left"])
def test_segments_of_an_epoch_are_joined(left: str, tmp_path: Path) -> None:
    Recording(tmp_path, 0, segment=1).take(np.full(1, 1, "<f4"), step=0).sealed(complete=False)
    getattr(Recording(tmp_path, 0, segment=2).take(np.full(1, 2, "<f4"), step=1), left)()
    run = probes.open(tmp_path)
    assert run["acts", "fc1"].rows().tolist() == [1, 2]
    assert run.state == {0: "complete" if left == "sealed" else "unsealed"}


def test_a_capture_that_arrives_after_its_epoch_keeps_its_clock_in_the_next_epoch(tmp_path: Path) -> None:
    counted(tmp_path, 1, 1)
    Recording(tmp_path, 1).take(np.full((2, 3), 7, "<f4"), step=3, epoch=0).take(np.full((2, 3), 8, "<f4"), step=0).sealed()
    series = probes.open(tmp_path)["acts", "fc1"].sel(epoch=1)
    assert [(capture.clock.epoch, capture.clock.step, capture.value[0, 0]) for capture in series] == [(0, 3, 7), (1, 0, 8)]


def test_one_file_alone_is_a_run(tmp_path: Path) -> None:
    counted(tmp_path, 3)
    run = probes.open(tmp_path / "epoch-0002.h5")
    assert run.epochs == [2]
    assert run.manifest["run_id"] == "r"
    assert run["acts", "fc1"].numpy()[0, 0, 0] == 20


def test_the_spec_is_read_from_the_run_or_from_a_file(tmp_path: Path) -> None:
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


def test_a_path_without_a_run_is_refused(tmp_path: Path) -> None:
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
    sealed_file = read.SealedFile
    monkeypatch.setattr(read, "SealedFile", lambda path: opened.append(path.name) or sealed_file(path))
    run = probes.open(counted(tmp_path, 3))
    assert run.epochs == [0, 1, 2]
    assert opened == []
    run.sel(epoch=1)["acts", "fc1"].numpy()
    assert opened == ["epoch-0001.h5"]


def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module, "OPEN_FILES", 2)
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    counted(tmp_path, 12, 1)
    captures = list(probes.open(tmp_path)["acts", "fc1"])
    assert len(captures) == 12
    assert open_below(tmp_path) <= 2 * 3


def test_the_runs_of_a_process_share_its_descriptors_and_the_files_used_last_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_module, "most_descriptors", lambda: 3 * directory_module.OPEN_SHARE)
    folders = [counted(tmp_path / str(index), 4, 1) for index in range(3)]
    runs = [directory_at(folder) for folder in folders]
    places = [(run, name) for run in runs for name in sorted(path.name for path in run.path.glob("*.h5"))]
    opened = [run.file(name) for run, name in places[:3]]
    assert places[0][0].file(places[0][1]) is opened[0]
    for run, name in places[4:9]:
        run.file(name)
        assert places[0][0].file(places[0][1]) is opened[0]
    assert sum(len(run.open_files) for run in runs) == 3
    del run, places, runs, opened
    again = directory_at(folders[0])
    files = [again.file(name) for name in sorted(path.name for path in folders[0].glob("*.h5"))[:3]]
    assert [file for _, file in again.open_files.values()] == files  # files of runs that are gone do not count


def test_threads_that_read_different_runs_share_the_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module, "most_descriptors", lambda: 2 * directory_module.OPEN_SHARE)
    runs = [counted(tmp_path / str(index), 4, 1) for index in range(4)]

    def read_again(folder: Path) -> int:
        run = probes.open(folder)
        return sum(len(run.sel(epoch=epoch)["acts", "fc1"].numpy()) for _ in range(10) for epoch in range(4))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read_again, runs)) == [40] * 4


def test_h5py_and_xarray_may_have_the_same_file_open(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
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


def test_runs_are_found_in_folders_of_any_depth(tmp_path: Path) -> None:
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(1200):
            Path("a").mkdir()
            os.chdir("a")
        Path("run.json").touch()
        os.chdir(tmp_path)
        assert len([*run_directories(Path())]) == 1
        for _ in range(1200):
            os.chdir("a")
        Path("run.json").unlink()
        for _ in range(900):
            Path("a").mkdir()
            os.chdir("a")
        os.chdir(tmp_path)
        with pytest.raises(StorageError, match="cannot be searched for runs: File name too long"):
            list(run_directories(tmp_path))
    finally:
        os.chdir(here)
        subprocess.run(["find", str(tmp_path), "-mindepth", "1", "-delete"], check=True)
