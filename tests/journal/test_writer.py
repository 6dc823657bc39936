from __future__ import annotations

import ctypes
import os
import random
import struct
import subprocess
import sys
import threading
from errno import EIO
from pathlib import Path
from typing import Any

import pytest

from probes.clock import SeriesKey
from probes.errors import StorageError
from probes.journal.record_writer import RawFile
from probes.journal.scan import scan
from probes.journal.writer import Journal
from probes.signature import Descriptor
from tests.journal.journals import HEAD, Taker, end_of, read
from tests.test_plain_file import largest_file

SIZES = (0, 1, 7, 8, 63, 4096, 65_535, 65_536, 65_537, 131_071, 131_072, 131_073, 300_001, (3 << 20) + 5)


@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("buffer_bytes", [4096, 65_536, 1 << 20])
def test_every_size_comes_back_bit_for_bit(tmp_path: Path, durability: str, buffer_bytes: int) -> None:
    taker = Taker(tmp_path / "a.journal", durability=durability, buffer_bytes=buffer_bytes)
    order = random.Random(buffer_bytes)
    for _ in range(3):
        for size in order.sample(SIZES, len(SIZES)):
            taker.add(order.randbytes(size))
        taker.commit()
    taker.journal.end(True, "done", {"accounts": []})
    found, payloads = read(taker.journal.path)
    assert payloads == taker.acknowledged
    assert found.state == "complete"
    assert found.trusted
    assert found.end == {"complete": True, "reason": "done", "closing": {"accounts": []}}
    assert found.good_bytes == end_of(taker.journal) == taker.journal.path.stat().st_size
    assert taker.journal.captures == 3 * len(SIZES)
    assert taker.journal.waited_ns > 0


def test_a_large_payload_starts_a_page(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal")
    for size in (200_000, 5, 200_000, 200_000):
        taker.add(bytes(size))
    taker.commit()
    offsets = scan(taker.journal.path).captures["offset"]
    assert [int(offset) % 4096 for offset in offsets[[0, 2, 3]]] == [0, 0, 0]
    assert int(offsets[1]) % 8 == 0
    taker.journal.close()


def test_the_clock_of_a_capture_and_of_its_commit_come_back(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "a.journal", HEAD)
    number = journal.descriptor(
        Descriptor(SeriesKey("p", "", "grad", "eval"), "float32", (), (), {"stat": ["mean"]}, {"hook": "tensor"}, epoch=2)
    )
    value = ctypes.c_float(1.5)
    journal.add(number, 7, -1, 2, 3, ctypes.addressof(value), 4, flags=1)
    journal.commit("eval", 9, 19, {"gaps": [["p", "", "grad", "eval", "unused", 1]], "ids": [4, 5]})
    journal.commit("train", 0, 0)
    journal.close()
    found = scan(journal.path)
    assert found.captures[0].tolist()[:6] == (number, 1, 7, -1, 2, 3)
    assert found.commits.tolist() == [(0, 9, 19, 0, 1), (1, 0, 0, 1, 0)]
    assert found.phases == ("eval", "train")
    assert found.annexes == ((0, {"gaps": [["p", "", "grad", "eval", "unused", 1]], "ids": [4, 5]}),)
    key = {"probe": "p", "target": "", "leaf": "grad", "phase": "eval"}
    about = {"dims": [], "coords": {"stat": ["mean"]}, "attrs": {"hook": "tensor"}, "epoch": 2}
    assert found.descriptors == ({"id": 0, "key": key, "dtype": "float32", "shape": [], **about},)


def test_the_head_contains_the_values_of_the_caller_and_of_the_format(tmp_path: Path) -> None:
    Journal.create(tmp_path / "a.journal", HEAD, durability="power").close()
    head = scan(tmp_path / "a.journal").head
    assert head.items() >= HEAD.items()
    assert head["format"] == "journal.v1"
    assert head["durability"] == "power"
    assert len(bytes.fromhex(head["nonce"])) == 16


def test_an_uncommitted_step_is_not_in_the_file(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal", buffer_bytes=4096)
    taker.add(b"one")
    taker.commit()
    for _ in range(10):
        taker.add(bytes(3000))
    found, payloads = read(taker.journal.path)
    assert payloads == [[b"one"]]
    assert found.state == "open"
    taker.journal.close()


@pytest.mark.parametrize("size", [3, 3000, 200_000])
def test_an_aborted_step_is_void_and_the_next_one_is_not(tmp_path: Path, size: int) -> None:
    taker = Taker(tmp_path / "a.journal", buffer_bytes=4096)
    taker.add(b"one")
    taker.commit()
    for _ in range(4):
        taker.add(b"x" * size)
    taker.journal.abort()
    taker.step = []
    assert taker.journal.captures == 1
    taker.add(b"two")
    taker.commit()
    taker.add(b"never")
    taker.journal.end(False, "raised", {})
    found, payloads = read(taker.journal.path)
    assert payloads == [[b"one"], [b"two"]]
    assert taker.journal.captures == 2
    assert found.end is not None
    assert found.end["complete"] is False


def test_a_full_buffer_is_written_before_the_commit(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal", buffer_bytes=4096)
    before = end_of(taker.journal)
    for number in range(1000):
        taker.add(bytes([number % 256]) * 100)
    assert end_of(taker.journal) > before + 90_000
    taker.commit()
    taker.journal.close()
    assert read(taker.journal.path)[1] == taker.acknowledged


def test_captures_without_bytes_fill_the_table_not_the_memory(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal", buffer_bytes=4096)
    for _ in range(500):
        taker.add(b"")
    taker.commit()
    taker.journal.close()
    assert len(scan(taker.journal.path).captures) == 500


def test_address_zero_is_refused_unless_there_is_nothing_to_read(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal")
    with pytest.raises(ValueError, match="a capture of 4 bytes has no memory"):
        taker.journal.add(taker.descriptor(4), 0, 0, 0, 0, 0, 4)
    taker.journal.add(taker.descriptor(0), 0, 0, 0, 0, 0, 0)
    assert taker.journal.captures == 0
    taker.commit()
    assert taker.journal.captures == 1
    taker.journal.close()


def test_bad_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be one of `process` and `power`; got `disk`"):
        Journal.create(tmp_path / "a.journal", HEAD, durability="disk")
    with pytest.raises(ValueError, match="must be at least 4096; got 10"):
        Journal.create(tmp_path / "a.journal", HEAD, buffer_bytes=10)


def test_an_existing_journal_is_never_overwritten(tmp_path: Path) -> None:
    path, spare = tmp_path / "a.journal", tmp_path / "spare.journal"
    path.write_bytes(b"mine")
    spare.write_bytes(b"spare")
    with pytest.raises(StorageError, match="File exists"):
        Journal.create(path, HEAD, spare=spare)
    assert path.read_bytes() == b"mine"
    assert spare.read_bytes() == b"spare"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot create the journal .*nowhere"):
        Journal.create(tmp_path / "nowhere" / "a.journal", HEAD)


def test_a_recycled_journal_shows_nothing_of_its_earlier_content(tmp_path: Path) -> None:
    spare = tmp_path / "spare.journal"
    for life in range(4):
        taker = Taker(tmp_path / f"{life}.journal", spare=spare, buffer_bytes=4096)
        for number in range(4 - life):
            taker.add(bytes([life]) * 200_000)
            taker.add(bytes([life]) * 500)
            taker.commit()
            found, payloads = read(taker.journal.path)
            assert payloads == taker.acknowledged
            assert found.state == "open", number
        taker.journal.end(True, "done", {})
        found, payloads = read(taker.journal.path)
        assert (found.state, payloads) == ("complete", taker.acknowledged)
        assert not spare.exists()
        taker.journal.path.rename(spare)


def test_a_spare_journal_that_has_a_second_name_is_not_used(tmp_path: Path) -> None:
    spare = tmp_path / "spare.journal"
    spare.write_bytes(b"precious")
    os.link(spare, tmp_path / "other")
    Journal.create(tmp_path / "a.journal", HEAD, spare=spare).close()
    assert spare.read_bytes() == b"precious"


def test_a_closed_journal_refuses_and_closes_twice(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal")
    taker.journal.close()
    taker.journal.close()
    with pytest.raises(StorageError, match="it was closed"):
        taker.commit()


FORK = """
import os, sys
from pathlib import Path
from typing import Any
from probes.errors import StorageError
from tests.journal.journals import Taker, read

taker = Taker(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    try:
        taker.commit()
    except StorageError as error:
        os._exit(7 if "belongs to process" in str(error) else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
taker.add(b"one")
taker.commit()
taker.journal.close()
assert read(taker.journal.path)[1] == [[b"one"]]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_may_not_write(tmp_path: Path) -> None:
    # In a process of its own, as a fork of one with threads is warned of.
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", FORK, str(tmp_path / "a.journal")], check=True, env={**os.environ, "PYTHONPATH": root})


def test_the_descriptor_is_closed_across_exec(tmp_path: Path) -> None:
    file = RawFile(tmp_path / "a", create=True)
    assert not os.get_inheritable(file._descriptor)
    file.close()


def test_threads_do_not_mix_their_captures(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal", buffer_bytes=8192)
    numbers = {size: taker.descriptor(size) for size in (100, 150_000)}

    def work(mark: int) -> None:
        for call in range(100):
            size = 150_000 if call % 20 == 0 else 100
            memory = ctypes.create_string_buffer(bytes([mark]) * size, size)
            taker.journal.add(numbers[size], 0, mark, call, 0, ctypes.addressof(memory), size)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taker.journal.commit("train", 0, 0)
    taker.journal.close()
    found, payloads = read(taker.journal.path)
    assert len(found.captures) == 400
    for row, payload in zip(found.captures, payloads[0], strict=True):
        assert set(payload) == {int(row["microstep"])}


def test_a_journal_that_cannot_get_its_name_is_an_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> None:
        raise OSError(EIO, "Input/output error")

    monkeypatch.setattr("probes.journal.writer.sync_directory", broken)
    with pytest.raises(StorageError, match="Input/output error; earlier epochs are safe"):
        Taker(tmp_path / "a.journal")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"coords": {"stat": [["mean"]]}}, "coords"), ({"dims": ("row", "row2")}, "dims"), ({"dtype": "float33"}, "dtype")],
    ids=["labels", "names", "dtype"],
)
def test_a_series_that_no_file_can_hold_is_refused_at_once_and_affects_no_other(tmp_path: Path, wrong: dict[str, Any], named: str) -> None:
    journal = Journal.create(tmp_path / "a.journal", HEAD)
    about: dict[str, Any] = {"dtype": "float32", "shape": (1,), "dims": ("row",), "coords": {}, "attrs": {}}
    with pytest.raises(ValueError, match=named):
        journal.descriptor(Descriptor(SeriesKey("bad", "", "grad", "train"), **{**about, **wrong}))
    value = ctypes.c_float(1.5)
    journal.add(journal.descriptor(Descriptor(SeriesKey("good", "", "grad", "train"), **about)), 0, 0, 0, 0, ctypes.addressof(value), 4)
    journal.commit("train", 0, 0)
    journal.end(True, "", {})
    assert len(scan(journal.path).captures) == 1


def test_a_number_that_does_not_fit_in_an_entry_stores_nothing(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "a.journal", HEAD)
    number = journal.descriptor(Descriptor(SeriesKey("acts", "layer", "output", "train"), "uint8", (4,), None, {}, {}))
    memory = ctypes.create_string_buffer(b"abcd", 4)
    with pytest.raises(struct.error):
        journal.add(number, 1 << 32, 0, 0, 0, ctypes.addressof(memory), 4)
    assert journal.captures == 0
    journal.add(number, 7, 0, 0, 0, ctypes.addressof(memory), 4)
    journal.commit("train", 7, 7)
    found, payloads = read(journal.path)
    assert payloads == [[b"abcd"]]
    assert found.captures["step"].tolist() == [7]


@pytest.mark.parametrize("buffer_bytes", [4099, 4103])
def test_a_capture_as_large_as_an_uneven_buffer_is_stored(tmp_path: Path, buffer_bytes: int) -> None:
    taker = Taker(tmp_path / "a.journal", buffer_bytes=buffer_bytes)
    taker.add(b"\1" * (buffer_bytes - 1))
    taker.commit()
    assert read(taker.journal.path)[1] == taker.acknowledged


def test_the_largest_size_of_a_file_is_not_reported_as_a_full_disk(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal")
    taker.add(b"good")
    taker.commit()
    with largest_file(end_of(taker.journal) + 4096), pytest.raises(StorageError, match=r"File too large; 1 step .*`ulimit -f`"):
        _stored(taker, bytes(1 << 20))
    _stored(taker, b"more")
    taker.journal.close()
    assert read(tmp_path / "a.journal")[1] == [[b"good"], [b"more"]]


def _stored(taker: Taker, content: bytes) -> None:
    taker.add(content)
    taker.commit()


@pytest.mark.parametrize("nbytes", [4, 1 << 20], ids=["small", "large"])
def test_a_file_that_has_got_the_number_of_the_journal_is_neither_written_to_nor_closed(tmp_path: Path, nbytes: int) -> None:
    taker = Taker(tmp_path / "a.journal")
    taker.add(b"good")
    taker.commit()
    number = os.open(tmp_path / "of the program", os.O_RDWR | os.O_CREAT)
    closed = taker.journal._log._file._held.number  # what `os.closerange` finds, for example
    os.dup2(number, closed)
    with pytest.raises(StorageError, match=r"other code of this process has closed all files, or that of the journal .*; 1 step committed"):
        _stored(taker, bytes(nbytes))
    taker.journal.close()
    assert os.path.samestat(os.fstat(closed), os.fstat(number))
    assert os.fstat(number).st_size == 0
    os.close(closed)
    os.close(number)
    assert read(tmp_path / "a.journal")[1] == [[b"good"]]


def test_a_journal_that_another_process_removed_is_reported_at_once(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal")
    taker.add(b"one")
    taker.commit()
    taker.journal.path.unlink()
    taker.add(b"two")
    with pytest.raises(StorageError, match=r"was removed by another process; 1 step committed to it is lost unless it was sealed before"):
        taker.commit()
    with pytest.raises(StorageError, match="another process has removed it"):
        taker.commit()
