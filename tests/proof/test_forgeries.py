"""Forgeries, and the exit code of `probes verify` that an auditor needs: 0 only for what nobody could know without an anchor."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import pytest
from click.testing import CliRunner

import probes
from probes.commands.verify import verify as command
from probes.digest import blake3_hex, canonical
from probes.errors import ProbesError, UsageError
from probes.proof.verify import verify
from probes.run_directory.launch.end_note import end_name
from probes.run_directory.launch.launch_file import launch_name
from probes.run_directory.listing import Directory
from tests import independent_verifier
from tests.proof.forger import attempt, chained, earlier, lines, listed, other, restated, stated
from tests.proof.runs import manifest, replaced, small, write_run

ONE, LAUNCH, SEGMENTS, STARTED = "one", "launch", "segments", "started"
FILE, LAST = "epoch-0000.h5", "epoch-0001.h5"
RANKS = ("ledger.rank-0000.jsonl", "ledger.rank-0001.jsonl")


class Forgery(NamedTuple):
    """One forgery.

    Attributes:
        of: the run that is changed.
        change: what the forger does.
        alone: exit code of `verify RUN`.
        anchored: exit code of `verify RUN --anchor HEAD`, with the head of the run before the change.
    """

    of: str
    change: Callable[[Path], object]
    alone: int = 1
    anchored: int = 1


def _replaced_whole(run: Path) -> None:
    shutil.rmtree(run)
    write_run(run, epochs=2, source=small, change=other)


def _new_ledger(run: Path) -> None:
    attempt(run)
    entries = lines(run)
    chained(run, entries[:-1])
    chained(run, [entries[-1] | {"rank": 1}], RANKS[1])


def _new_rank(run: Path) -> None:
    write_run(run, epochs=1, source=small, change=other, rank=1)


def _second_launch(run: Path) -> None:
    for rank in range(2):
        attempt(run, rank=rank)


def _cut(run: Path, ledger: str = "ledger.jsonl") -> None:
    chained(run, lines(run, ledger)[:-1], ledger)
    (run / LAST.replace(".h5", ledger.removeprefix("ledger").removesuffix(".jsonl") + ".h5")).unlink()


def _renamed(run: Path) -> None:
    (run / LAST).rename(run / "epoch-0007.h5")
    stated(run, file="epoch-0007.h5", epoch=7)


def _copied(run: Path, name: str, **changes: Any) -> None:
    shutil.copy(run / FILE, run / name)
    listed(run, name, 0, **changes)


def _rows(run: Path, **changes: Any) -> None:
    """Change what the first line states of its series."""
    stated(run, at=0, series=[row | changes for row in lines(run)[0]["series"]])


def _linked(run: Path, name: str) -> None:
    (run / name).rename(run.parent / f"{run.name}-{name}")
    (run / name).symlink_to(run.parent / f"{run.name}-{name}")


def _pipe(run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)


def _folder(run: Path, name: str) -> None:
    (run / name).unlink()
    (run / name).mkdir()


def _relisted(run: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the last file and what its line states of its bytes."""
    _rewritten(run, change, LAST)
    content = (run / LAST).read_bytes()
    stated(run, bytes=len(content), file_blake3=blake3_hex(content))


def _appended(run: Path, text: bytes) -> None:
    with (run / "ledger.jsonl").open("ab") as file:
        file.write(text)


def _rewritten(run: Path, change: Callable[[bytes], bytes], name: str = "ledger.jsonl") -> None:
    (run / name).write_bytes(change((run / name).read_bytes()))


def _rank_gone(run: Path) -> None:
    for path in run.glob("*rank-0001*"):
        path.unlink()


def _ledgers_exchanged(run: Path) -> None:
    first, second = (run / name for name in RANKS)
    texts = first.read_bytes(), second.read_bytes()
    first.write_bytes(texts[1])
    second.write_bytes(texts[0])


def _rank_forged(run: Path) -> None:
    _rank_gone(run)
    write_run(run, epochs=2, source=small, change=other, rank=1)


def _manifest(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    found = json.loads((run / "run.json").read_text())
    change(found)
    (run / "run.json").write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def _in_file(run: Path, change: Callable[[h5py.File], object]) -> None:
    """Change the last file by means of HDF5, and repair its line."""
    with h5py.File(run / LAST, "r+") as file:
        change(file)
    data = (run / LAST).read_bytes()
    stated(run, bytes=len(data), file_blake3=blake3_hex(data))


def _names(group: h5py.Group, of: h5py.Group) -> None:
    for number in range(5_000):
        h5py.h5o.link(of.id, group.id, b"x%d:output" % number)


def _many_names(file: h5py.File) -> None:
    _names(file["captures/acts"], _series(file))


def _further_segment(run: Path) -> None:
    with suppress(ProbesError):  # sealed and listed; the ledger is refused when it is read again
        write_run(run, epochs=1, source=small, segment=3)


def _less(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != key}


def _series(file: h5py.File) -> h5py.Group:
    return next(iter(file["captures/acts"].values()))


def _added(dataset: h5py.Dataset, number: int) -> None:
    dataset[...] = dataset[()] + number


def _other_manifest(run: Path) -> None:
    write_run(run.parent / f"{run.name}-other", epochs=1, source=small, attempt=2)
    shutil.copy(run.parent / f"{run.name}-other" / "run.a2.json", run / "run.a2.json")
    text = (run / "run.a2.json").read_text()
    assert '"run_id": "' in text
    (run / "run.a2.json").write_text(text.replace('"run_id": "', '"run_id": "x'))


def _in_manifest_text(run: Path, old: str, new: str) -> None:
    _rewritten(run, lambda text: text.replace(old.encode(), new.encode(), 1), "run.json")


def _launch_file(run: Path, run_id: str = "r", world: int = 1, before: bytes = b"", attempt: int = 1) -> bytes:
    stated: dict[str, Any] = {
        "format": "launch.v1",
        "run_id": run_id,
        "attempt": attempt,
        "world": world,
        "next_epoch": 0,
        "restart": 0,
        "ticks": 0,
    }
    stated |= dict.fromkeys(("launcher", "job", "agent", "token", "started"), "x")
    content = b"{" + before + canonical(stated)[1:] + b"\n"
    (run / launch_name(attempt)).write_bytes(content)
    return content


def launched(run: Path) -> None:
    """Two starts of two ranks with launch files: of the second, rank 1 was killed, so that the first one counts on both ranks."""
    run.mkdir(parents=True)
    for number in (1, 2):
        origin = replaced(manifest(), launch=sha256(_launch_file(run, world=2, attempt=number)).hexdigest())
        for rank in range(2):
            options: dict[str, Any] = {"origin": origin, "attempt": number, "rank": rank, "complete": (number, rank) != (2, 1)}
            write_run(run, epochs=1, source=small, change=other if number == 2 else lambda one, epoch: one, **options)


def late(run: Path) -> None:
    """Two starts of two ranks: the first one was killed before rank 0 had joined, so that `run.a2.json` is the first manifest of rank 0."""
    run.mkdir(parents=True)
    for number, rank in ((1, 1), (2, 0), (2, 1)):
        origin = replaced(manifest(), launch=sha256(_launch_file(run, world=2, attempt=number)).hexdigest())
        write_run(run, epochs=number - 1, source=small, origin=origin, attempt=number, rank=rank)


FORGERIES: dict[str, Forgery] = {
    "a manifest with a key twice": Forgery(ONE, lambda run: _in_manifest_text(run, '"run_id": "r"', '"run_id": "x",\n "run_id": "r"')),
    "a manifest with a truth value for a number": Forgery(ONE, lambda run: _in_manifest_text(run, '"rank": 0', '"rank": false')),
    "a manifest with a fraction for an integer": Forgery(ONE, lambda run: _in_manifest_text(run, '"rank": 0', '"rank": 0.0')),
    "a manifest with an escape for a letter": Forgery(ONE, lambda run: _in_manifest_text(run, '"run_id"', '"run\\u005fid"')),
    "a manifest with carriage returns": Forgery(ONE, lambda run: _rewritten(run, lambda text: text.replace(b"\n", b"\r\n"), "run.json")),
    "a launch file of one process": Forgery(ONE, _launch_file),
    "nothing in two starts of a launch": Forgery(STARTED, lambda run: None, 0, 0),
    "the launch files taken out, so that other attempts count": Forgery(
        STARTED, lambda run: [(run / name).unlink() for name in ("launch.json", "launch.a2.json")]
    ),
    "the launch file of one start taken out": Forgery(STARTED, lambda run: (run / "launch.a2.json").unlink()),
    "a launch file with another start time": Forgery(
        STARTED, lambda run: _rewritten(run, lambda text: text.replace(b'"started":"x"', b'"started":"y"'), "launch.json")
    ),
    "launch files put next to ranks that had none": Forgery(LAUNCH, lambda run: _launch_file(run, world=2)),
    "a launch file of a start that sealed nothing": Forgery(LAUNCH, lambda run: _launch_file(run, world=2, attempt=2), 0, 0),
    "a manifest of one rank that names no launch file": Forgery(
        STARTED, lambda run: _rewritten(run, lambda text: re.sub(rb'"launch": "[0-9a-f]+"', b'"launch": null', text), "run.rank-0001.json")
    ),
    "a launch file of another run": Forgery(ONE, lambda run: _launch_file(run, "s")),
    "a launch file of more processes": Forgery(ONE, lambda run: _launch_file(run, world=2)),
    "a launch file with a key twice": Forgery(ONE, lambda run: _launch_file(run, before=b'"world":9,')),
    "a file that is a hard link to another epoch": Forgery(ONE, lambda run: ((run / LAST).unlink(), os.link(run / FILE, run / LAST))),
    "a file with a block before the HDF5 content": Forgery(
        ONE, lambda run: _relisted(run, lambda content: b"#!/bin/sh\n".ljust(512, b"\0") + content)
    ),
    "a file with zeros behind its end": Forgery(ONE, lambda run: _relisted(run, lambda content: content + bytes(4096))),
    "a file with an object reference": Forgery(
        ONE, lambda run: _in_file(run, lambda file: file.create_dataset("r", data=file.ref, dtype=h5py.ref_dtype))
    ),
    "zeros after the last line, as a loss of power leaves them": Forgery(ONE, lambda run: _appended(run, bytes(9) + b"\n"), 0, 0),
    "another attempt in a new ledger of another rank": Forgery(ONE, _new_ledger),
    "a rank more than the run had": Forgery(ONE, _new_rank),
    "a second launch with two ranks": Forgery(ONE, _second_launch, 0, 1),
    "an appended line that replaces an epoch": Forgery(ONE, attempt, 0, 1),
    "an appended line of a third attempt": Forgery(ONE, lambda run: (attempt(run), attempt(run, 3)), 0, 1),
    "everything forged": Forgery(ONE, _replaced_whole, 0, 1),
    "the last epoch taken out with its line": Forgery(ONE, _cut, 0, 1),
    "every line and file taken out": Forgery(ONE, lambda run: (_cut(run), chained(run, []), (run / FILE).unlink())),
    "a file under another epoch": Forgery(ONE, _renamed),
    "a file copied to a free epoch": Forgery(ONE, lambda run: _copied(run, "epoch-0005.h5", epoch=5)),
    "a file copied to a segment": Forgery(ONE, lambda run: _copied(run, "epoch-0000.s0001.h5", segment=1)),
    "a file copied to a rank": Forgery(ONE, lambda run: _copied(run, "epoch-0000.rank-0000.h5")),
    "a file copied to a name with more zeros": Forgery(ONE, lambda run: _copied(run, "epoch-00000.h5")),
    "a file with a first attempt in its name": Forgery(ONE, lambda run: _copied(run, "epoch-0000.a1.h5")),
    "a file listed twice": Forgery(ONE, lambda run: listed(run, FILE, 0)),
    "a file listed twice in two ledgers": Forgery(ONE, lambda run: listed(run, FILE, 0, RANKS[0])),
    "a segment number of a million": Forgery(ONE, lambda run: _copied(run, "epoch-0000.a2.s1000000.h5", segment=1_000_000, attempt=2)),
    "a segment number of a million millions": Forgery(ONE, lambda run: stated(run, segment=10**12)),
    "an attempt in the line only": Forgery(ONE, lambda run: stated(run, attempt=2)),
    "an attempt in the file and the line": Forgery(ONE, lambda run: restated(run, LAST, attempt=2)),
    "an epoch in the file and the line": Forgery(ONE, lambda run: restated(run, LAST, epoch=5)),
    "a rank in the file and the line": Forgery(ONE, lambda run: restated(run, LAST, rank=1)),
    "an epoch that is said to be incomplete": Forgery(ONE, lambda run: stated(run, complete=False, reason="killed")),
    "an epoch that is said to replace another": Forgery(ONE, lambda run: stated(run, supersedes=FILE)),
    "more captures in the line": Forgery(ONE, lambda run: stated(run, captures=99)),
    "another captures root in the line": Forgery(ONE, lambda run: stated(run, captures_root="0" * 64)),
    "other captures of a series in the line": Forgery(ONE, lambda run: _rows(run, captures=99)),
    "another shape of a series in the line": Forgery(ONE, lambda run: _rows(run, shape=[1])),
    "a series more in the line": Forgery(ONE, lambda run: stated(run, at=0, series=lines(run)[0]["series"] * 2)),
    "no series in the line": Forgery(ONE, lambda run: stated(run, series=None), 0, 1),
    "the series of a line to come": Forgery(ONE, lambda run: stated(run, series=1)),
    "the series of a line that is not there": Forgery(ONE, lambda run: stated(run, series=10**15)),
    "a series with a size below 0": Forgery(ONE, lambda run: _rows(run, shape=[-1])),
    "remarks in the line that the file does not have": Forgery(ONE, lambda run: stated(run, remarks=True)),
    "a line of an earlier release": Forgery(ONE, lambda run: earlier(run), 0, 1),
    "a line of an earlier release with series": Forgery(ONE, lambda run: stated(run, format="ledger.v1")),
    "a path in the line": Forgery(ONE, lambda run: stated(run, file=f"../run/{LAST}")),
    "an unfinished epoch": Forgery(ONE, lambda run: write_run(run, epochs=3, first=2, source=small, seals=False)),
    "a file without a line": Forgery(ONE, lambda run: shutil.copy(run / FILE, run / "epoch-0009.h5")),
    "a ledger that is a link": Forgery(ONE, lambda run: _linked(run, "ledger.jsonl")),
    "a ledger that is a pipe": Forgery(ONE, lambda run: _pipe(run, "ledger.jsonl")),
    "a ledger that is a directory": Forgery(ONE, lambda run: _folder(run, "ledger.jsonl")),
    "a ledger without an end": Forgery(ONE, lambda run: ((run / "ledger.jsonl").unlink(), (run / "ledger.jsonl").symlink_to("/dev/zero"))),
    "a file that is a pipe": Forgery(ONE, lambda run: _pipe(run, LAST)),
    "a file that is a directory": Forgery(ONE, lambda run: _folder(run, LAST)),
    "a file that is a link to another epoch": Forgery(ONE, lambda run: ((run / LAST).unlink(), (run / LAST).symlink_to(FILE))),
    "a file that is a link": Forgery(ONE, lambda run: _linked(run, LAST)),
    "a manifest that is a link": Forgery(ONE, lambda run: _linked(run, "run.json")),
    "a spec that is a link": Forgery(ONE, lambda run: _linked(run, "spec.yaml")),
    "a spec that is a pipe": Forgery(ONE, lambda run: _pipe(run, "spec.yaml")),
    "a manifest of a start that never was": Forgery(ONE, _other_manifest),
    "a line of deep JSON": Forgery(ONE, lambda run: _appended(run, b"[" * 100_000 + b"]" * 100_000 + b"\n")),
    "a line with a number of 10,000 digits": Forgery(ONE, lambda run: _appended(run, b'{"index":' + b"9" * 10_000 + b"}\n")),
    "a line with half a surrogate pair": Forgery(
        ONE, lambda run: stated(run, reason="x") or _rewritten(run, lambda text: text.replace(b'"x"', b'"\\ud800"'))
    ),
    "a line with a key twice": Forgery(ONE, lambda run: _rewritten(run, lambda text: text.replace(b'"epoch":1,', b'"epoch":0,"epoch":1,'))),
    "an empty line": Forgery(ONE, lambda run: _appended(run, b"\n")),
    "lines with carriage returns": Forgery(ONE, lambda run: _rewritten(run, lambda text: text.replace(b"\n", b"\r\n"))),
    "a byte order mark": Forgery(ONE, lambda run: _rewritten(run, lambda text: b"\xef\xbb\xbf" + text)),
    "a last line that looks torn": Forgery(ONE, lambda run: _rewritten(run, lambda text: text[:-5] + b"\0" + text[-4:])),
    "captures that are a truth value": Forgery(ONE, lambda run: stated(run, captures=True)),
    "an epoch that is a truth value": Forgery(ONE, lambda run: stated(run, at=0, epoch=False)),
    "an end that is a number": Forgery(ONE, lambda run: stated(run, complete=1)),
    "a size with a fraction": Forgery(ONE, lambda run: stated(run, bytes=float(lines(run)[-1]["bytes"]))),
    "a segment 0": Forgery(ONE, lambda run: stated(run, segment=0)),
    "a line with one more key": Forgery(ONE, lambda run: stated(run, note="x")),
    "a line with one key less": Forgery(
        ONE, lambda run: chained(run, [{k: v for k, v in one.items() if k != "reason"} for one in lines(run)])
    ),
    "a file that replaces itself": Forgery(ONE, lambda run: stated(run, supersedes=LAST)),
    "digests in capitals": Forgery(ONE, lambda run: stated(run, captures_root=lines(run)[-1]["captures_root"].upper())),
    "a manifest whose numbers are texts": Forgery(ONE, lambda run: _manifest(run, lambda it: it["environment"].update(threads="4"))),
    "a manifest with another start time": Forgery(ONE, lambda run: _manifest(run, lambda it: it.update(started="1999"))),
    "a manifest taken out": Forgery(ONE, lambda run: (run / "run.json").unlink()),
    "a spec taken out": Forgery(ONE, lambda run: (run / "spec.yaml").unlink()),
    "a name with digits of another script": Forgery(ONE, lambda run: _copied(run, "epoch-000\u0665.h5", epoch=5)),
    "a journal of a sealed epoch": Forgery(ONE, lambda run: (run / "epoch-0000.journal").write_bytes(b"x")),
    "the lines in the other order, chained": Forgery(ONE, lambda run: chained(run, lines(run)[::-1])),
    "a file with a hole of a TiB behind its end": Forgery(ONE, lambda run: os.truncate(run / LAST, 1 << 40)),
    "a file that grew by a hole, and changed": Forgery(
        ONE, lambda run: (_rewritten(run, lambda text: text[:-1] + b"x", LAST), os.truncate(run / LAST, 1 << 40))
    ),
    "a series under 5,000 names": Forgery(ONE, lambda run: _in_file(run, _many_names)),
    "a probe under 5,000 names": Forgery(ONE, lambda run: _in_file(run, lambda file: _names(file["captures"], file["captures/acts"]))),
    "a payload with its line": Forgery(
        ONE, lambda run: _in_file(run, lambda file: _added(next(iter(file["captures/acts"].values()))["values"], 1))
    ),
    "sample ids with their line": Forgery(ONE, lambda run: _in_file(run, lambda file: _added(file["steps/train/sample_id"], 1))),
    "a rank taken out": Forgery(LAUNCH, _rank_gone),
    "the ledgers of two ranks exchanged": Forgery(LAUNCH, _ledgers_exchanged),
    "a rank forged": Forgery(LAUNCH, _rank_forged, 0, 1),
    "a third rank of two": Forgery(LAUNCH, lambda run: write_run(run, epochs=2, source=small, rank=2)),
    "the last epoch of one rank taken out": Forgery(LAUNCH, lambda run: _cut(run, RANKS[1])),
    "an attempt of one rank of two": Forgery(LAUNCH, lambda run: attempt(run, rank=1)),
    "a line of another rank": Forgery(
        LAUNCH, lambda run: chained(run, [*lines(run, RANKS[0]), lines(run, RANKS[1])[-1] | {"epoch": 7}], RANKS[0])
    ),
    "a manifest of one rank taken out": Forgery(LAUNCH, lambda run: (run / "run.rank-0001.json").unlink()),
    "the last epoch of all ranks taken out": Forgery(LAUNCH, lambda run: [_cut(run, name) for name in RANKS], 0, 1),
    "a segment behind the end of a complete epoch": Forgery(SEGMENTS, _further_segment),
    "the first segment taken out": Forgery(SEGMENTS, lambda run: ((run / "epoch-0000.s0001.h5").unlink(), chained(run, lines(run)[1:]))),
    "the last segment taken out": Forgery(
        SEGMENTS, lambda run: ((run / "epoch-0000.s0002.h5").unlink(), chained(run, lines(run)[:-1])), 0, 1
    ),
    "an attempt of a launch of one": Forgery(LAUNCH, attempt, 0, 1),
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("honest")
    write_run(path / ONE, epochs=2, source=small)
    for rank in range(2):
        write_run(path / LAUNCH, epochs=2, source=small, rank=rank)
    for segment in (1, 2):
        write_run(path / SEGMENTS, epochs=1, source=small, segment=segment, complete=segment == 2)
    launched(path / STARTED)
    return {name: path / name for name in (ONE, LAUNCH, SEGMENTS, STARTED)}


@cache
def head_of(path: Path) -> str:
    return verify(path).head


def answer(path: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(command, [str(path), *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output.splitlines()[-1]


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_ends_with_the_exit_code_that_an_auditor_needs(honest: dict[str, Path], name: str, tmp_path: Path) -> None:
    forgery = FORGERIES[name]
    head = head_of(honest[forgery.of])
    run = Path(shutil.copytree(honest[forgery.of], tmp_path / "run"))
    forgery.change(run)
    started = time.process_time()
    code, last = answer(run)
    assert code == forgery.alone, last
    assert last.endswith("not anchored")
    code, last = answer(run, "--anchor", head)
    assert code == forgery.anchored, last
    assert time.process_time() - started < 5
    assert independent_verifier.verifies(run) == (forgery.alone == 0)


def test_the_spec_of_a_launch_that_rank_0_joined_in_its_second_start_is_proven_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    late(run)
    head = verify(run).head
    assert answer(run, "--anchor", head)[0] == 0
    assert independent_verifier.verifies(run)
    for change in (lambda: (run / "spec.yaml").write_bytes(b"version: 1\n"), lambda: (run / "spec.yaml").unlink()):
        change()
        assert answer(run, "--anchor", head)[0] == 1
        assert [one.code for one in verify(run).findings if not one.note] == ["spec-edited"]
        assert not independent_verifier.verifies(run)


@pytest.mark.parametrize(
    "name", ["another attempt in a new ledger of another rank", "a file listed twice in two ledgers", "a path in the line"]
)
def test_the_reader_refuses_a_directory_that_is_not_a_run(honest: dict[str, Path], name: str, tmp_path: Path) -> None:
    run = Path(shutil.copytree(honest[ONE], tmp_path / "run"))
    FORGERIES[name].change(run)
    with pytest.raises(ProbesError):
        _ = probes.open(run)["acts", "fc1"].numpy()


def test_a_run_that_continued_is_as_anchored_up_to_its_anchor(honest: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(honest[ONE], tmp_path / "run"))
    head = verify(run).head
    write_run(run, epochs=3, first=2, source=small)
    assert answer(run, "--anchor", head)[0] == 0
    assert answer(run, "--anchor", head)[1].endswith("as anchored, up to the lines that were added later")
    assert answer(run / "epoch-0002.h5", "--anchor", head)[0] == 1
    assert answer(run / "epoch-0001.h5", "--anchor", head) == (0, answer(run / "epoch-0001.h5", "--anchor", head)[1])


def test_an_epoch_that_was_incomplete_in_the_anchor_may_be_resumed(tmp_path: Path) -> None:
    head = write_run(tmp_path, epochs=1, source=small, complete=False)
    attempt(tmp_path)
    code, last = answer(tmp_path, "--anchor", head)
    assert code == 0
    assert last.endswith("as anchored, up to the lines that were added later")
    notes = {finding.code: finding.message for finding in verify(tmp_path, anchor=head).findings}
    assert "a later attempt, which is not anchored, counts instead" in notes["anchor-resumed"]
    assert "anchor-replaced" not in notes
    assert answer(tmp_path / FILE, "--anchor", head)[0] == 0
    assert answer(tmp_path / "epoch-0000.a2.h5", "--anchor", head)[0] == 1


def test_a_note_that_a_rank_had_ended_does_not_change_which_complete_attempt_is_read(tmp_path: Path) -> None:
    """Rank 1 of the second start was killed before it sealed its epoch; nothing covers a note that it had ended by itself."""
    run = tmp_path / "run"
    run.mkdir()
    for number, rank, epochs in ((1, 0, 1), (1, 1, 1), (2, 0, 1), (2, 1, 0)):
        origin = replaced(manifest(), launch=sha256(_launch_file(run, world=2, attempt=number)).hexdigest())
        write_run(run, epochs=epochs, source=small, origin=origin, attempt=number, rank=rank)
    before = [one.name for one in Directory(run).current]
    assert before == ["epoch-0000.rank-0000.h5", "epoch-0000.rank-0001.h5"]
    ended = {"head": blake3_hex((run / RANKS[1]).read_bytes().splitlines()[-1])}
    (run / end_name(2, 1)).write_bytes(canonical(ended) + b"\n")
    assert [one.name for one in Directory(run).current] == before


def test_steps_of_an_anchored_file_that_readers_take_from_a_later_attempt_are_named(tmp_path: Path) -> None:
    head = write_run(tmp_path, epochs=1, source=small, complete=False)
    last = write_run(
        tmp_path,
        epochs=1,
        source=small,
        attempt=2,
        complete=False,
        first_step=1,
        change=lambda one, epoch: other(one, epoch) if one.step else None,
    )
    for path in (tmp_path, tmp_path / FILE):
        resumed = {one.file: one.message for one in verify(path, anchor=head).findings if one.code == "anchor-resumed"}
        assert [*resumed] == [FILE]
        assert resumed[FILE].endswith("; its training steps from 1 on are read from a later attempt, which is not anchored")
    assert {one.code for one in verify(tmp_path, anchor=last).findings} == {"incomplete"}
    assert answer(tmp_path, "--anchor", head)[1].endswith("as anchored, up to the lines that were added later")
    grown = next(one.message for one in verify(tmp_path, anchor=head).findings if one.code == "ledger-grown")
    assert grown == '1 line follows those that the anchor covers: "epoch-0000.a2.h5" is not anchored'


@pytest.mark.parametrize("anchor", ["", "0" * 8, "0" * 31, "0" * 65, "x" * 64])
def test_a_text_that_is_too_short_or_not_a_hash_is_not_an_anchor(honest: dict[str, Path], anchor: str) -> None:
    done = CliRunner().invoke(command, [str(honest[ONE]), "--anchor", anchor])
    assert "is not an anchor" in str(done.exception)


@pytest.mark.parametrize(
    ("anchor", "why"),
    [
        ("../anchors/run.json", "No such file or directory"),
        (".", "it is not a regular file"),
        ('{"head": "' + "0" * 5_000 + '"}', "File name too long"),
        ("x\0y", "it is not the name of a file"),
    ],
)
def test_an_anchor_that_is_neither_a_hash_nor_a_file_is_refused_with_the_reason(honest: dict[str, Path], anchor: str, why: str) -> None:
    refused = CliRunner().invoke(command, [str(honest[ONE]), "--anchor", anchor]).exception
    assert isinstance(refused, UsageError)
    assert f"is not an anchor: {why}, and a ledger head has 64 hexadecimal digits" in str(refused)
    assert len(str(refused)) < 400


def test_a_head_may_be_copied_with_spaces_around_it(honest: dict[str, Path]) -> None:
    head = verify(honest[ONE]).head
    assert answer(honest[ONE], "--anchor", f" {head}\n")[1].endswith("as anchored")
    assert verify(honest[ONE], anchor=f"{head}\r\n").anchored


FILES: dict[str, tuple[Callable[[Path], object], int]] = {
    "nothing": (lambda run: None, 0),
    "the file is listed nowhere": (lambda run: chained(run, lines(run)[:-1]), 1),
    "the chain is broken": (lambda run: _rewritten(run, lambda text: text.replace(b'"captures":2', b'"captures":3', 1)), 1),
    "a line is no line": (lambda run: _appended(run, b"x\n"), 1),
    "readers show another attempt at its epoch": (lambda run: attempt(run, 2, 2), 1),
    "it is listed twice": (lambda run: listed(run, LAST), 1),
    "the ledger was cut": (lambda run: ((run / FILE).unlink(), chained(run, lines(run)[1:])), 1),
}


@pytest.mark.parametrize("name", FILES)
def test_one_file_is_verified_with_its_line_and_chain(honest: dict[str, Path], name: str, tmp_path: Path) -> None:
    change, expected = FILES[name]
    head = verify(honest[ONE]).head
    run = Path(shutil.copytree(honest[ONE], tmp_path / "run"))
    change(run)
    assert answer(run / LAST, "--anchor", head)[0] == expected


def test_a_file_without_a_ledger_next_to_it_is_reported_as_alone(honest: dict[str, Path], tmp_path: Path) -> None:
    shutil.copy(honest[ONE] / FILE, tmp_path / "some.h5")
    code, last = answer(tmp_path / "some.h5")
    assert code == 0
    assert "alone, not anchored: a person who changed the file could also have changed its digests" in last
    assert verify(tmp_path / "some.h5").alone


def test_each_of_several_runs_is_verified_and_one_that_was_changed_fails_all(honest: dict[str, Path], tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        shutil.copytree(honest[ONE], tmp_path / "runs" / name)
    assert answer(tmp_path / "runs") == (0, f"{tmp_path / 'runs'} verifies: 12 captures in 6 files of 3 runs, not anchored")
    _rewritten(tmp_path / "runs" / "b", lambda text: text[:-9], LAST)
    assert answer(tmp_path / "runs")[0] == 1
    found = [finding for finding in verify(tmp_path / "runs").findings if not finding.note]
    assert [(finding.code, finding.file) for finding in found] == [("truncated", f"b/{LAST}")]


def test_a_file_with_the_name_of_another_epoch_is_not_read(honest: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(honest[ONE], tmp_path / "run"))
    shutil.copy(run / LAST, run / FILE)
    with pytest.raises(ProbesError, match="states another epoch than its name"):
        _ = probes.open(run)["acts", "fc1"].numpy()


def test_runs_in_runs_are_verified_and_links_to_runs_are_not_passed_over(honest: dict[str, Path], tmp_path: Path) -> None:
    inner = Path(shutil.copytree(honest[ONE], tmp_path / "runs" / "a" / "inner"))
    shutil.copytree(honest[ONE], tmp_path / "runs" / "a", dirs_exist_ok=True)
    assert answer(tmp_path / "runs")[0] == 0
    _rewritten(inner, lambda text: text[:-9], LAST)
    assert answer(tmp_path / "runs")[0] == 1
    shutil.move(inner, tmp_path / "away")
    assert answer(tmp_path / "runs")[0] == 0
    (tmp_path / "runs" / "b").symlink_to(tmp_path / "away")
    assert [one.code for one in verify(tmp_path / "runs").findings] == ["not-regular"]


def test_a_file_with_the_name_of_a_hash_is_not_read_as_an_anchor(
    honest: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the working directory that is called as the hash, one in the run, and one with two heads."""
    head = verify(honest[ONE]).head
    run = tmp_path / "run"
    write_run(run, epochs=2, source=small, change=other)
    kept = {"format": "anchor.v1", "run_id": "r", "head": verify(run).head, "files": 2}
    for name in (head, "anchor.json"):
        (run / name).write_text(json.dumps(kept))
    monkeypatch.chdir(run)
    assert answer(run, "--anchor", head)[0] == 1
    refused = CliRunner().invoke(command, [str(run), "--anchor", "anchor.json"]).exception
    assert "is in the run directory" in str(refused)
    (tmp_path / "twice.json").write_text(json.dumps(kept).replace('"head"', f'"head": "{head}", "head"'))
    refused = CliRunner().invoke(command, [str(run), "--anchor", str(tmp_path / "twice.json")]).exception
    assert "is not an anchor" in str(refused)
