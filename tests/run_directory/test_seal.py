"""Sealing: the same journal gives the same file, killed anywhere or not."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from probes.capture_file import codecs as compression
from probes.capture_file.read import SealedFile
from probes.capture_file.series_name import SeriesAddress
from probes.digest import canonical, file_hex
from probes.errors import FileRefused, MissingExtra, StorageError, UsageError
from probes.journal.writer import Journal
from probes.run_directory.ledger import Ledger, SealedFileInfo
from probes.run_directory.seal import seal
from tests.journal.journals import end_of
from tests.run_directory.epochs import ACTS, CLOSING, MANIFEST, Shot, begin, fill, names, payloads, sealed, stored, write, zoo

blake3 = pytest.importorskip("blake3", reason="blake3 is not installed").blake3
POINTS = ("laid out", "transferred", "built", "published", "entered", "dropped")


def fresh(directory: Path, name: str) -> Path:
    made = directory / name
    made.mkdir()
    return made


def seal_zoo(directory: Path, shots: Sequence[Shot] | None = None, options: dict[str, Any] | None = None, **journal: Any) -> SealedFileInfo:
    annexes = {0: {"ids": [1, 2], "gaps": [["acts", "fc", "output", "train", "frozen", 2]]}}
    path = write(directory, zoo() if shots is None else shots, annexes=annexes, **journal)
    return seal(path, directory, options)


def test_the_same_journal_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = fresh(tmp_path, "a"), fresh(tmp_path, "b")
    journal = write(first, zoo())
    (second / journal.name).write_bytes(journal.read_bytes())
    one, two = seal(journal, first), seal(second / journal.name, second)
    assert one.file_blake3 == two.file_blake3 == file_hex(first / one.file)
    assert one.head == two.head


def test_the_captures_root_does_not_depend_on_how_the_captures_arrived(tmp_path: Path) -> None:
    shots = zoo()
    plain = seal_zoo(fresh(tmp_path, "plain"), shots)
    flushed = seal_zoo(fresh(tmp_path, "flushed"), shots, buffer_bytes=4096, durability="power")
    mixed = list(shots)
    random.Random(1).shuffle(mixed)
    mixed.sort(key=lambda shot: (shot.key.phase, shot.step))
    shuffled = seal_zoo(fresh(tmp_path, "shuffled"), mixed)
    packed = seal_zoo(fresh(tmp_path, "packed"), shots, {"compression": "gzip"})
    assert {one.captures_root for one in (plain, flushed, shuffled, packed)} == {plain.captures_root}
    assert {one.epoch_root for one in (plain, flushed, shuffled, packed)} == {plain.epoch_root}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"run_id": "another"}, True),
        ({"attempt": 1, "manifest": {**MANIFEST, "started": "later"}}, True),
        ({"rank": 1}, False),
    ],
    ids=["run id", "manifest", "rank"],
)
def test_the_captures_root_covers_captures_and_nothing_else(tmp_path: Path, change: dict[str, Any], same: bool) -> None:
    one = seal_zoo(fresh(tmp_path, "a"))
    two = seal_zoo(fresh(tmp_path, "b"), head=change)
    assert (one.captures_root == two.captures_root) is same


def test_one_bit_changes_the_captures_root(tmp_path: Path) -> None:
    data = Shot().payload
    flipped = bytes([data[0] ^ 1, *data[1:]])
    roots = {
        seal(write(fresh(tmp_path, name), [Shot(data=content)]), tmp_path / name).captures_root
        for name, content in zip("ab", (data, flipped), strict=True)
    }
    assert len(roots) == 2


def test_the_roots_follow_from_the_definition(tmp_path: Path) -> None:
    shots = [Shot(shape=(3, 4096), step=step, call=call) for step in range(3) for call in range(2)]
    result = seal(write(tmp_path, shots, annexes={1: {"gaps": [["acts", "fc", "output", "train", "frozen", 2]]}}), tmp_path)
    pairs = [b"".join(payloads(shots[at : at + 2])) for at in range(0, 6, 2)]  # two captures of 48 KiB reach 64 KiB
    blocks = b"".join(blake3(pair).digest() for pair in pairs)
    clocks = b"".join(number.to_bytes(4, "little") for step in range(3) for call in range(2) for number in (3, step, 0, call, 0, 0))
    shapes = b"".join((2).to_bytes(4, "little") + (3).to_bytes(8, "little") + (4096).to_bytes(8, "little") for _ in shots)
    head = canonical({**ACTS._asdict(), "dtype": "float32", "captures": 6, "blocks": 3})
    series = blake3(head + b"\n" + clocks + shapes + blocks).hexdigest()
    gaps = [["acts", "fc", "output", "train", "frozen", 2]]
    root = blake3(canonical({"series": [[*ACTS, "float32", series]], "gaps": gaps})).hexdigest()
    assert result.captures_root == root
    counts = {"captures": 6, "steps": CLOSING["steps"]}
    facts = {**MANIFEST["identity"], "captures_root": root, "counts": counts, "complete": True}
    assert result.epoch_root == blake3(canonical(facts)).hexdigest()
    file = SealedFile(tmp_path / result.file)
    assert file.document("gaps") == gaps
    assert file.root.group("captures").group("acts").group("features.0:output").array("block_digest").read().tobytes() == blocks


@pytest.mark.parametrize("name", ["gzip", "zstd", "blosc2"])
@pytest.mark.parametrize("shape", [(4, 5), (70_000, 3), (3, 100_000), (), (0, 2)], ids=str)
def test_compressed_values_come_back_bit_for_bit(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    pytest.importorskip({"gzip": "zlib", "zstd": "zstandard", "blosc2": "blosc2"}[name], reason=f"the extra `{name}` is not installed")
    shots = [Shot(shape=shape, step=step, dtype="bfloat16") for step in range(3)]
    assert stored(sealed(tmp_path, shots, name)) == payloads(shots)


def test_an_unknown_compression_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    journal = write(tmp_path, [Shot()])
    with pytest.raises(UsageError, match='"lzma" is not a known compression; known: none, gzip, zstd, blosc2'):
        seal(journal, tmp_path, {"compression": "lzma"})
    assert names(tmp_path) == [journal.name]


def test_a_codec_that_is_not_installed_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtra, match=r"torch-probes\[zstd\]"):
        compression.compression("zstd")


def test_the_journal_goes_when_its_file_is_in_the_ledger(tmp_path: Path) -> None:
    result = seal_zoo(tmp_path)
    assert names(tmp_path) == ["epoch-0003.h5", "ledger.jsonl"]
    (entry,) = Ledger(tmp_path / "ledger.jsonl").entries
    assert (entry.file, entry.file_blake3, entry.digest) == ("epoch-0003.h5", result.file_blake3, result.head)
    assert entry.bytes == (tmp_path / "epoch-0003.h5").stat().st_size


def test_the_journal_becomes_the_spare_one_on_request(tmp_path: Path) -> None:
    seal_zoo(tmp_path, options={"spare": True})
    assert (tmp_path / "spare.journal").exists()
    again = write(tmp_path, [Shot()], name="epoch-0004.journal", head={"epoch": 4}, spare=tmp_path / "spare.journal")
    assert stored(tmp_path / seal(again, tmp_path).file) == payloads([Shot()])


def test_the_file_has_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        seal_zoo(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "epoch-0003.h5").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("name", "head", "file"),
    [
        ("epoch-0003.a2.journal", {"attempt": 2}, "epoch-0003.a2.h5"),
        ("epoch-0003.s0001.journal", {"segment": 1}, "epoch-0003.s0001.h5"),
        ("epoch-0003.rank-0002.journal", {"rank": 2}, "epoch-0003.rank-0002.h5"),
    ],
)
def test_attempts_segments_and_ranks_have_separate_files(tmp_path: Path, name: str, head: dict[str, Any], file: str) -> None:
    result = seal(write(tmp_path, [Shot()], name=name, head=head), tmp_path)
    assert result.file == file
    assert (tmp_path / ("ledger.rank-0002.jsonl" if "rank" in head else "ledger.jsonl")).exists()


def test_a_journal_under_another_name_is_refused(tmp_path: Path) -> None:
    journal = write(tmp_path, [Shot()])
    with pytest.raises(FileRefused, match="is the journal of epoch-0003"):
        seal(journal.rename(tmp_path / "epoch-0004.journal"), tmp_path)


def test_an_epoch_without_an_end_is_sealed_as_incomplete(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    fill(journal, [Shot()])
    journal.close()
    result = seal(journal.path, tmp_path)
    assert (result.complete, result.reason) == (False, "the process ended before the epoch did")
    assert stored(tmp_path / result.file) == payloads([Shot()])


def test_a_torn_journal_is_sealed_up_to_its_last_commit(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    fill(journal, [Shot(step=0), Shot(step=1)])
    journal.close()
    with journal.path.open("r+b") as file:
        file.truncate(end_of(journal) - 1)
    result = seal(journal.path, tmp_path)
    assert (result.complete, result.captures) == (False, 1)
    assert "in the middle of a write" in result.reason
    assert stored(tmp_path / result.file) == payloads([Shot(step=0)])


def test_captures_that_arrive_in_another_order_are_sorted_by_the_clock(tmp_path: Path) -> None:
    shots = [Shot(step=0, call=call, shape=(100,)) for call in range(600)]
    assert stored(sealed(tmp_path, [*reversed(shots)], buffer_bytes=4096)) == payloads(shots)


def test_a_large_epoch_needs_little_memory(tmp_path: Path) -> None:
    shots = [Shot(step=step, shape=(8 << 20,), dtype="uint8") for step in range(8)]
    journal = write(tmp_path, shots)
    tracemalloc.start()
    seal(journal, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 << 20
    part = SealedFile(tmp_path / "epoch-0003.h5").part(SeriesAddress(ACTS))
    assert part.elements(7, 8).tobytes() == shots[7].payload


def killed(run: Path, point: str) -> None:
    """Seal in a process of its own that is killed at a point."""
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom probes.run_directory.seal import seal\n"
        "run, point = Path(sys.argv[1]), sys.argv[2]\n"
        "seal(run / 'epoch-0003.journal', run, None, lambda name: os.kill(os.getpid(), 9) if name == point else None)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, run, point], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("point", POINTS)
def test_a_sealer_killed_anywhere_and_started_again_leaves_one_file_and_one_line(tmp_path: Path, point: str) -> None:
    expected = seal_zoo(fresh(tmp_path, "whole"))
    run = fresh(tmp_path, "killed")
    annexes = {0: {"ids": [1, 2], "gaps": [["acts", "fc", "output", "train", "frozen", 2]]}}
    journal = write(run, zoo(), annexes=annexes)
    killed(run, point)
    if point != "dropped":
        result = seal(journal, run)
        assert result.captures_root == expected.captures_root
        assert result.repeated is (point == "entered")
    assert names(run) == ["epoch-0003.h5", "ledger.jsonl"]
    (entry,) = Ledger(run / "ledger.jsonl").entries
    assert entry.file_blake3 == file_hex(run / "epoch-0003.h5")
    assert entry.captures_root == expected.captures_root


def test_a_kill_between_the_two_names_of_a_file_is_repaired(tmp_path: Path) -> None:
    journal = write(tmp_path, zoo())
    killed(tmp_path, "built")
    (half,) = tmp_path.glob("epoch-0003.h5.*.tmp")
    os.link(half, tmp_path / "epoch-0003.h5")
    seal(journal, tmp_path)
    assert names(tmp_path) == ["epoch-0003.h5", "ledger.jsonl"]


def test_a_file_of_another_program_is_never_replaced(tmp_path: Path) -> None:
    other = sealed(fresh(tmp_path, "other"), [Shot()], head={"run_id": "another"})
    journal = write(tmp_path, zoo())
    for content in (b"mine", other.read_bytes()):
        (tmp_path / "epoch-0003.h5").write_bytes(content)
        with pytest.raises(StorageError, match="not in the ledger and belongs to another run"):
            seal(journal, tmp_path)
        assert (tmp_path / "epoch-0003.h5").read_bytes() == content
        assert journal.exists()
    assert not list(tmp_path.glob("*.tmp"))


def test_a_journal_whose_sealed_file_is_missing_is_kept(tmp_path: Path) -> None:
    journal = write(tmp_path, zoo())
    content = journal.read_bytes()
    seal(journal, tmp_path)
    journal.write_bytes(content)
    (tmp_path / "epoch-0003.h5").unlink()
    with pytest.raises(StorageError, match="is in the ledger, but not in the directory"):
        seal(journal, tmp_path)
    assert journal.exists()


def test_a_different_journal_with_the_name_of_a_sealed_one_is_kept(tmp_path: Path) -> None:
    seal_zoo(tmp_path)
    journal = write(tmp_path, [Shot()])
    with pytest.raises(StorageError, match="was not built from"):
        seal(journal, tmp_path)
    assert journal.exists()


def test_a_journal_of_as_many_other_captures_as_the_sealed_one_is_kept(tmp_path: Path) -> None:
    seal(write(tmp_path, [Shot()]), tmp_path)
    before = names(tmp_path)
    journal = write(tmp_path, [Shot(data=bytes(24))])
    with pytest.raises(StorageError, match="was not built from"):
        seal(journal, tmp_path)
    assert names(tmp_path) == sorted([*before, journal.name])
    journal.unlink()
    journal = write(tmp_path, [Shot()])
    assert seal(journal, tmp_path).repeated
    assert names(tmp_path) == before


def test_a_full_disk_keeps_the_journal_and_leaves_no_half_file(tmp_path: Path) -> None:
    journal = write(tmp_path, [Shot(step=step, shape=(1 << 18,)) for step in range(4)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"cannot be built: File too large"):
            seal(journal, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert names(tmp_path) == [journal.name]
    assert seal(journal, tmp_path).captures == 4


def test_sealing_needs_no_torch(tmp_path: Path) -> None:
    program = "import sys, probes.run_directory.seal, probes.run_directory.sealer_process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_old_file_does_not_affect_a_live_journal_of_the_same_name(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        seal(tmp_path / "epoch-0003.journal", tmp_path)
    assert isinstance(begin(tmp_path), Journal)


def test_a_file_that_cannot_be_built_is_reported_in_one_line_with_the_words_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "Unable to create file (file write failed: time = Mon Nov 23\n, errno = 28, error message = '...')")

    path = write(tmp_path, zoo())
    monkeypatch.setattr("probes.run_directory.seal.publish", full)
    with pytest.raises(StorageError, match=r"cannot be built: No space left on device \(about") as caught:
        seal(path, tmp_path)
    assert "\n" not in str(caught.value)
