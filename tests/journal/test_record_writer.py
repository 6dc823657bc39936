"""Disks that are full, fail, or take less than they are given; and Ctrl-C in between."""

from __future__ import annotations

import random
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from probes.errors import StorageError
from probes.journal.record_writer import RawFile
from probes.journal.writer import Journal
from tests.journal.journals import HEAD, Opener, Taker, end_of, read


@pytest.fixture
def opener() -> Opener:
    return Opener()


def test_a_full_disk_is_one_clear_error_and_committed_steps_remain(tmp_path: Path, opener: Opener) -> None:
    taker = Taker(tmp_path / "a.journal", opener=opener)
    taker.add(b"one")
    taker.commit()
    opener.file.room = end_of(taker.journal) + 200_000
    with pytest.raises(StorageError) as caught:
        taker.add(bytes(400_000))
    assert caught.value.errno == ENOSPC
    for part in ("cannot write 400064 bytes", "a.journal", "No space left", "bytes are free", "1 step committed before it is safe"):
        assert part in str(caught.value)
    assert read(taker.journal.path)[1] == [[b"one"]]
    opener.file.room = None
    taker.add(b"two")
    taker.commit()
    taker.journal.end(True, "done", {})
    assert read(taker.journal.path)[1] == [[b"one"], [b"two"]]


def fill(taker: Taker) -> None:
    while True:
        taker.add(bytes([len(taker.acknowledged)]) * 300)
        taker.commit()


def test_a_full_disk_at_every_byte_loses_no_acknowledged_step(tmp_path: Path, opener: Opener) -> None:
    Taker(tmp_path / "measure.journal").journal.close()
    head = (tmp_path / "measure.journal").stat().st_size
    for room in range(head + 64, head + 3000, 37):
        taker = Taker(tmp_path / f"{room}.journal", opener=opener, buffer_bytes=4096)
        opener.file.room = room
        with pytest.raises(StorageError):
            fill(taker)
        assert read(taker.journal.path)[1] == taker.acknowledged
        opener.file.room = None
        taker.journal.abort()
        taker.step = []
        taker.add(b"after")
        taker.commit()
        taker.journal.close()
        assert read(taker.journal.path)[1] == taker.acknowledged


def test_the_buffer_of_a_failed_commit_can_be_committed_again(tmp_path: Path, opener: Opener) -> None:
    taker = Taker(tmp_path / "a.journal", opener=opener)
    taker.add(b"one")
    opener.file.error = EIO
    with pytest.raises(StorageError, match="injected"):
        taker.commit()
    opener.file.error = 0
    taker.commit()
    taker.journal.close()
    assert read(taker.journal.path)[1] == [[b"one"]]


def test_short_writes_are_completed(tmp_path: Path, opener: Opener) -> None:
    taker = Taker(tmp_path / "a.journal", opener=opener, durability="power")
    chance = random.Random(5)
    opener.file.at_most = lambda: chance.choice([1, 63, 64, 65, 1000, 50_000, 1 << 20])
    for size in (10, 5000, 200_000, 10, 300_000):
        taker.add(chance.randbytes(size))
        taker.commit()
    taker.journal.end(True, "done", {})
    assert read(taker.journal.path)[1] == taker.acknowledged


def test_a_disk_that_accepts_no_bytes_is_an_error_and_not_a_loop(tmp_path: Path, opener: Opener) -> None:
    taker = Taker(tmp_path / "a.journal", opener=opener)
    opener.file.at_most = lambda: 0
    with pytest.raises(StorageError, match="took no bytes"):
        taker.commit()
    taker.journal.close()


def test_a_journal_that_cannot_be_cut_back_reports_it_and_stays_closed(tmp_path: Path, opener: Opener) -> None:
    taker = Taker(tmp_path / "a.journal", opener=opener)
    taker.add(b"one")
    taker.commit()
    opener.file.error = opener.file.truncate_error = EIO
    for _ in range(2):
        with pytest.raises(StorageError, match="takes no more captures: it could not be truncated"):
            taker.add(bytes(200_000))
    opener.file.error = 0
    with pytest.raises(StorageError, match="takes no more captures"):
        taker.commit()
    assert read(taker.journal.path)[1] == [[b"one"]]
    taker.journal.close()


def test_a_failed_sync_acknowledges_nothing_and_closes_the_journal(tmp_path: Path, opener: Opener) -> None:
    taker = Taker(tmp_path / "a.journal", opener=opener, durability="power")
    taker.add(b"one")
    taker.commit()
    taker.add(b"two")
    opener.file.sync_error = EIO
    with pytest.raises(StorageError, match="1 step committed before it is safe"):
        taker.commit()
    opener.file.sync_error = 0
    with pytest.raises(StorageError, match="the device did not accept the data"):
        taker.commit()
    taker.journal.close()


def test_durability_power_syncs_each_commit_and_process_only_the_end(tmp_path: Path) -> None:
    counts = {}
    for durability in ("process", "power"):
        opener = Opener()
        taker = Taker(tmp_path / f"{durability}.journal", opener=opener, durability=durability)
        before = opener.file.syncs
        for _ in range(5):
            taker.commit()
        during = opener.file.syncs - before
        taker.journal.end(True, "done", {})
        counts[durability] = (before, during, opener.file.syncs - before - during)
    assert counts == {"process": (1, 0, 2), "power": (1, 5, 1)}


class _Interrupted(RawFile):
    """A file in whose next write Ctrl-C arrives just after the bytes were taken."""

    armed = False

    def write(self, parts, offset):  # type: ignore[no-untyped-def]  # those of RawFile
        taken = super().write(parts, offset)
        if self.armed:
            type(self).armed = False
            raise KeyboardInterrupt
        return taken


def test_bytes_left_by_an_interrupt_are_cut_before_the_next_record(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal", opener=_Interrupted)
    taker.descriptor(200_000)  # so that the record after the interrupt is an extent, which goes to another place
    taker.add(b"one")
    taker.commit()
    taker.add(b"lost")
    _Interrupted.armed = True
    with pytest.raises(KeyboardInterrupt):
        taker.commit()
    taker.journal.abort()
    taker.step = []
    taker.add(b"L" * 200_000)
    taker.commit()
    taker.journal.end(True, "done", {})
    found, payloads = read(taker.journal.path)
    assert payloads == taker.acknowledged
    assert found.state == "complete"


def test_a_failed_create_leaves_no_file(tmp_path: Path) -> None:
    class Full(RawFile):
        def write(self, parts, offset):  # type: ignore[no-untyped-def]  # those of RawFile
            raise OSError(ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match="no step was committed to this journal; the epochs and segments before it are safe"):
        Journal.create(tmp_path / "a.journal", HEAD, opener=Full)
    assert list(tmp_path.iterdir()) == []


def test_space_is_taken_ahead_without_a_byte_more_in_the_file(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal")
    taker.add(b"one" * 1000)
    taker.commit()
    status = taker.journal.path.stat()
    assert status.st_size == end_of(taker.journal)
    if RawFile(tmp_path / "b", create=True).reserve(0, 1 << 20):
        assert status.st_blocks * 512 > 1 << 20
    taker.journal.close()


def test_space_is_requested_once_if_it_cannot_be_reserved(tmp_path: Path) -> None:
    asked = []

    class Refusing(RawFile):
        def reserve(self, start: int, stop: int) -> bool:
            asked.append((start, stop))
            return False

    taker = Taker(tmp_path / "a.journal", opener=Refusing)
    for _ in range(40):
        taker.add(b"x" * 100_000)
        taker.commit()
    assert asked == [(0, asked[0][1])]
    assert read(taker.journal.path)[1] == taker.acknowledged
    taker.journal.close()
