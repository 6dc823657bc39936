"""Runs that an earlier release has sealed, or has left behind when it was killed: every later release reads them the same.

`tests/release_corpus/README.md` says what they are. Only what the package promises to its users is used here: `probes.open`,
`probes.verify`, `probes.diff` and the command line.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from collections.abc import Callable
from contextlib import redirect_stdout
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import probes
from probes.__main__ import main

HERE = Path(__file__).parent / "release_corpus"
VERSIONS = sorted(path.stem for path in HERE.glob("v*.json"))
EXPECTED: dict[str, Any] = {version: json.loads((HERE / f"{version}.json").read_text("utf-8")) for version in VERSIONS}
RUNS = [(version, name) for version in VERSIONS for name in EXPECTED[version]["runs"]]
KILLED = [(version, name) for version, name in RUNS if EXPECTED[version]["runs"][name]["journals"]]
SEALED = [place for place in RUNS if place not in KILLED]
OTHER_BOOT = "99999999-8888-4777-8666-555555555555"
CLOCK = ("epoch", "step", "global_step", "microstep", "call", "backward", "rank")

Boot = Callable[[str], None]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of every version, unpacked; nothing in it is written to."""
    folder = tmp_path_factory.mktemp("corpus")
    for version in VERSIONS:
        with tarfile.open(HERE / f"{version}.tar.xz") as archive:
            archive.extractall(folder / version, filter="data")
    return folder


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Boot:
    """Say which boot of the machine this is: the kernel's answer is replaced."""
    read = Path.read_text

    def pretend(identity: str) -> None:
        def told(path: Path, *args: Any, **keys: Any) -> str:
            return f"{identity}\n" if str(path) == "/proc/sys/kernel/random/boot_id" else read(path, *args, **keys)

        monkeypatch.setattr(Path, "read_text", told)

    return pretend


def expected(place: tuple[str, str]) -> Any:
    return EXPECTED[place[0]]["runs"][place[1]]


def copied(corpus: Path, place: tuple[str, str], to: Path) -> Path:
    return Path(shutil.copytree(corpus.joinpath(*place), to / place[1]))


def said(*words: object) -> tuple[int, str]:
    """The exit code of a command line, and what it printed."""
    text, before = io.StringIO(), sys.argv
    sys.argv = ["probes", *map(str, words)]
    try:
        with redirect_stdout(text):
            main()
    except SystemExit as ended:
        return int(ended.code or 0), text.getvalue()
    finally:
        sys.argv = before
    return 0, text.getvalue()


def read(run: Any) -> list[dict[str, Any]]:
    """Every series of a run as the expectation writes it down."""
    found = []
    for every in run.series:
        for series in every.by_dtype():
            key = series.key
            about = {"probe": key.probe, "target": key.target, "leaf": key.leaf, "phase": key.phase, "dtype": series.dtype}
            coords = {name: list(labels) for name, labels in series.signature.coords.items()}
            captures = [[*clock_of(one), *content_of(series, index, one)] for index, one in enumerate(series)]
            found.append({**about, "dims": list(series.dims) if series.dims else None, "labels": coords, "captures": captures})
    return sorted(found, key=lambda one: [one[name] for name in ("probe", "target", "leaf", "phase", "dtype")])


def clock_of(capture: Any) -> list[int]:
    return [int(getattr(capture.clock, name)) for name in CLOCK]


def content_of(series: Any, index: int, capture: Any) -> tuple[list[int], str]:
    """Shape and SHA-256 of a capture. Where numpy has no such dtype, the bits of all captures or of the capture's step are requested."""
    value = capture.value
    if str(value.dtype) != series.dtype:
        shapes = {one.value.shape for one in series}
        bits = series.bits()[index] if len(shapes) == 1 else one_by_one(series, capture)
        return list(value.shape), sha256(bits.tobytes()).hexdigest()
    return list(value.shape), sha256(value.tobytes()).hexdigest()


def one_by_one(series: Any, capture: Any) -> Any:
    return series.sel(epoch=capture.clock.epoch, step=capture.clock.step).bits()


def without_names(series: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name not in ("dims", "labels")} for one in series]


@pytest.mark.parametrize("place", SEALED, ids=" ".join)
def test_every_capture_of_an_old_run_is_read_bit_for_bit(corpus: Path, place: tuple[str, str]) -> None:
    wanted, run = expected(place), probes.open(corpus.joinpath(*place))
    assert read(run) == wanted["series"]
    assert run.events == wanted["events"]
    assert {f"{epoch}/{rank}": root for (epoch, rank), root in run.captures_roots.items()} == wanted["roots"]
    attempts = [(one.epoch, one.rank, one.attempt, list(one.files), one.state == "complete", one.current) for one in run.attempts]
    names = ("epoch", "rank", "attempt", "files", "complete", "current")
    assert attempts == [tuple(one[name] for name in names) for one in wanted["attempts"]]


@pytest.mark.parametrize("place", [place for place in SEALED if expected(place)["ids"]], ids=" ".join)
def test_the_ids_of_the_samples_are_those_that_the_loop_gave(corpus: Path, place: tuple[str, str]) -> None:
    run = probes.open(corpus.joinpath(*place))
    probe, target = {"phases": ("acts", "b"), "ids": ("p", "b")}[place[1]]
    for phase, table in expected(place)["ids"].items():
        assert run.sel(phase=phase)[probe, target].ids.tolist() == table["sample_id"]


@pytest.mark.parametrize("version", VERSIONS)
def test_tensors_of_every_dtype_come_back_to_torch_with_the_same_bits(corpus: Path, version: str) -> None:
    import torch

    for series in probes.open(corpus / version / "dtypes").series:
        tensor = series.torch()
        wanted = next(one for one in expected((version, "dtypes"))["series"] if one["leaf"] == series.key.leaf)
        assert str(tensor.dtype) == f"torch.{wanted['dtype']}"
        rows = [tensor[index].reshape(-1).view(torch.uint8).numpy().tobytes() for index in range(len(tensor))]
        assert [sha256(row).hexdigest() for row in rows] == [capture[-1] for capture in wanted["captures"]]


@pytest.mark.parametrize("place", SEALED, ids=" ".join)
def test_an_old_run_verifies_under_the_head_of_its_ledgers(corpus: Path, place: tuple[str, str]) -> None:
    wanted, path = expected(place), corpus.joinpath(*place)
    verdict = probes.verify(path, anchor=wanted["head"])
    assert verdict.ok, verdict.findings
    assert (verdict.anchored, verdict.head) == (True, wanted["head"])
    # Releases after 0.1.0 name, in notes of these codes, the values that a file states as missing, and the files that no digest covers.
    later = ("gaps", "uncovered", "manifest-uncovered")
    assert sorted([finding.file, finding.code] for finding in verdict.findings if finding.code not in later) == wanted["notes"]
    assert {file.file: [file.captures, file.captures_root] for file in verdict.files} == wanted["files"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_alone_of_the_first_release_verifies_and_is_reported_as_covered_in_part(corpus: Path, version: str, tmp_path: Path) -> None:
    shutil.copy(next((corpus / version / "pair-a").glob("*.h5")), tmp_path / "alone.h5")
    verdict = probes.verify(tmp_path / "alone.h5")
    assert verdict.ok
    assert ("proof-v1" in {finding.code for finding in verdict.findings}) == (version == "v0.1.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_command_line_takes_the_head_of_any_ledger_as_anchor(corpus: Path, version: str) -> None:
    wanted, path = expected((version, "ranks")), corpus / version / "ranks"
    for anchor in (wanted["head"], *wanted["heads"].values()):
        code, text = said("verify", path, "--anchor", anchor)
        assert (code, "as anchored" in text) == (0, True)


@pytest.mark.parametrize("place", SEALED, ids=" ".join)
def test_one_changed_byte_in_a_file_of_captures_is_found(corpus: Path, place: tuple[str, str], tmp_path: Path) -> None:
    """Every file of the run has one; each is named."""
    run = copied(corpus, place, tmp_path)
    files = sorted(run.glob("*.h5"))
    for path in files:
        change(path, place)
    found = {finding.file for finding in probes.verify(run).findings if not finding.note}
    assert found >= {path.name for path in files}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["ledger.jsonl", "run.json", "run.a2.json", "spec.yaml"])
def test_one_changed_byte_outside_of_the_files_of_captures_is_found(corpus: Path, version: str, name: str, tmp_path: Path) -> None:
    place = (version, "killed-and-resumed")
    run = copied(corpus, place, tmp_path)
    change(run / name, place)
    assert not probes.verify(run, anchor=expected(place)["head"]).ok


def change(path: Path, place: tuple[str, str]) -> None:
    """Turn one bit, at a place that follows from the names."""
    content = bytearray(path.read_bytes())
    content[int(sha256(f"{place}{path.name}".encode()).hexdigest(), 16) % len(content)] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("place", SEALED, ids=" ".join)
def test_an_old_run_is_equal_to_its_copy(corpus: Path, place: tuple[str, str], tmp_path: Path) -> None:
    found = probes.diff(corpus.joinpath(*place), copied(corpus, place, tmp_path), by_digest=False, bitwise=True)
    assert found.same
    assert found.counts["compared"] == sum(len(one["captures"]) for one in expected(place)["series"])
    assert (found.gaps, found.origins) == ((), ())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_divergence_of_two_old_runs_is_the_one_they_were_made_with(corpus: Path, version: str) -> None:
    wanted = EXPECTED[version]["first_divergence"]
    pair = (corpus / version / "pair-a", corpus / version / "pair-b")
    found = probes.diff(*pair)
    first = found.first
    assert first is not None
    assert (first.clock.epoch, first.clock.step) == (wanted["epoch"], wanted["step"])
    assert (first.key.probe, first.key.target, first.key.leaf) == (wanted["probe"], wanted["target"], wanted["leaf"])
    assert list(first.index) == wanted["index"]
    assert [int(bits, 16) for bits in (first.bits_a, first.bits_b)] == [int(wanted[side], 16) for side in ("bits_a", "bits_b")]
    assert found.counts["different"] == wanted["different"]
    assert said("diff", *pair)[0] == 1
    assert said("diff", pair[0], pair[0])[0] == 0


@pytest.mark.parametrize("place", SEALED, ids=" ".join)
def test_ls_lists_the_series_and_the_states_of_an_old_run(corpus: Path, place: tuple[str, str]) -> None:
    wanted, path = expected(place), corpus.joinpath(*place)
    code, text = said("ls", "--json", path)
    listed = json.loads(text)
    assert code == 0
    assert {str(one["epoch"]): one["state"] for one in listed["epochs"]} == wanted["states"]
    named = sorted([*(one[name] for name in ("probe", "target", "leaf", "phase", "dtype")), one["captures"]] for one in listed["series"])
    assert named == [
        [*(one[name] for name in ("probe", "target", "leaf", "phase", "dtype")), len(one["captures"])] for one in wanted["series"]
    ]
    one = listed["series"][-1]
    code, text = said("show", "--json", path, one["series"])
    assert (code, json.loads(text)["captures"]) == (0, one["captures"])


@pytest.mark.parametrize("place", KILLED, ids=" ".join)
def test_the_journal_of_an_old_run_reads_as_its_committed_steps(corpus: Path, place: tuple[str, str], boot: Boot) -> None:
    boot(EXPECTED[place[0]]["boot_id"])
    run = probes.open(corpus.joinpath(*place))
    assert without_names(read(run)) == committed(place, all_of)
    assert {run.state[epoch] for epoch in unsealed(place)} == {"unsealed"}
    verdict = probes.verify(run.path)
    assert "unsealed" in {finding.code for finding in verdict.findings}


@pytest.mark.parametrize("same", [True, False], ids=["same boot", "another boot"])
@pytest.mark.parametrize("place", KILLED, ids=" ".join)
def test_recover_seals_the_committed_steps_of_an_old_journal(
    corpus: Path, place: tuple[str, str], same: bool, boot: Boot, tmp_path: Path
) -> None:
    boot(EXPECTED[place[0]]["boot_id"] if same else OTHER_BOOT)
    path = copied(corpus, place, tmp_path)
    journals = {name: (path / name).read_bytes() for name, about in expected(place)["journals"].items() if not (same or synced(about))}
    code, text = said("recover", "--take-over", "--json", path)
    assert code == 0, text
    kept = {name for name in journals if (path / name).exists()}  # one without a step was sealed
    assert all((path / name).read_bytes() == journals[name] for name in kept), "what nothing proves is kept until somebody decides"
    code, text = said("recover", "--unproven", "include", path)
    assert code == 0, text
    run = probes.open(path)
    assert without_names(read(run)) == committed(place, all_of)
    assert probes.verify(path).ok
    states = {file: one.state for one in run.attempts for file in one.files}
    for name, journal in expected(place)["journals"].items():
        assert states[name.replace(".journal", ".h5")] == ("complete" if journal["complete"] else "incomplete")


def all_of(journal: dict[str, Any]) -> bool:
    """On the machine that wrote it, all that a journal has committed is there."""
    return True


def synced(journal: dict[str, Any]) -> bool:
    """What proves itself of a journal of release 0.1.0 once the machine was started anew.

    With durability `process` nothing is synced before the epoch ends, and no capture has a digest, although their bytes are whole here.
    """
    return bool(journal["durability"] == "power" or journal["complete"])


def unsealed(place: tuple[str, str]) -> set[int]:
    return {int(name.removeprefix("epoch-")[:4]) for name in expected(place)["journals"]}


def committed(place: tuple[str, str], kept: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """The series of what was sealed and of what the journals have that are `kept`, in the order of the reader."""
    wanted = expected(place)
    joined: dict[str, dict[str, Any]] = {}
    parts = [*without_names(wanted["series"]), *(one for each in wanted["journals"].values() if kept(each) for one in each["series"])]
    for one in parts:
        key = json.dumps([one[name] for name in ("probe", "target", "leaf", "phase", "dtype")])
        joined.setdefault(key, {**one, "captures": []})["captures"] += one["captures"]
    for one in joined.values():
        one["captures"].sort(key=lambda capture: (capture[0], capture[6], capture[1]))
    return [joined[key] for key in sorted(joined)]


def test_recover_does_not_touch_a_run_that_was_claimed_on_another_machine(corpus: Path, tmp_path: Path) -> None:
    for version in VERSIONS:
        path = copied(corpus, (version, "killed-process"), tmp_path / version)
        before = {one.name: one.read_bytes() for one in path.iterdir()}
        assert said("recover", path)[0] != 0
        assert {one.name: one.read_bytes() for one in path.iterdir()} == before
