from __future__ import annotations

from pathlib import Path

import pytest

from probes.errors import FileRefused
from probes.journal.scan import scan
from probes.journal.tail import JournalTail
from tests.journal.journals import Taker, end_of


def test_a_tail_returns_every_committed_step_once_like_a_scan(tmp_path: Path) -> None:
    path = tmp_path / "epoch-0003.journal"
    taker = Taker(path, buffer_bytes=4096)
    tail = JournalTail(path)
    assert list(tail.read()) == []
    found = []
    for step in range(12):
        taker.add(bytes([step]) * 40)
        taker.add(bytes([step]) * (300_000 if step % 3 == 0 else 3000))
        found += tail.read()
        assert len(found) <= step  # the open one is not committed
        taker.commit({"events": [{"step": step}]} if step == 5 else None)
    found += tail.read()
    whole = scan(path)
    assert [(one.phase, one.step, one.global_step) for one in found] == [("train", step, 100 + step) for step in range(12)]
    assert [row.tolist() for one in found for row in one.captures] == [row.tolist() for row in whole.captures]
    assert found[5].annex == {"events": [{"step": 5}]}
    for one, payloads in zip(found, taker.acknowledged, strict=True):
        sizes = [tail.descriptors[row["descriptor"]]["shape"][0] for row in one.captures]
        assert [tail.bytes_at(int(row["offset"]), size) for row, size in zip(one.captures, sizes, strict=True)] == payloads
    assert tail.end is None
    taker.journal.end(True, "", {})
    assert list(tail.read()) == []
    assert tail.end == {"complete": True, "reason": "", "closing": {}}


def test_an_aborted_step_is_never_given(tmp_path: Path) -> None:
    path = tmp_path / "epoch-0003.journal"
    taker = Taker(path, buffer_bytes=4096)
    tail = JournalTail(path)
    for _ in range(100):
        taker.add(b"x" * 100)  # more than the buffer takes
    list(tail.read())
    taker.journal.abort()
    taker.step = []
    taker.add(b"y" * 10)
    taker.commit()
    (step,) = tail.read()
    assert len(step.captures) == 1


@pytest.mark.parametrize("left", [1, 64, 65, 700])
def test_a_partial_record_is_returned_when_it_is_complete(tmp_path: Path, left: int) -> None:
    taker = Taker(tmp_path / "whole.journal")
    for _ in range(3):
        taker.add(bytes(range(256)) * 4)
        taker.commit()
    end = end_of(taker.journal)
    raw = (tmp_path / "whole.journal").read_bytes()[:end]
    path = tmp_path / "epoch-0003.journal"
    path.write_bytes(raw[: end - left])
    tail = JournalTail(path)
    assert [step.step for step in tail.read()] == [0, 1]
    path.write_bytes(raw)
    assert [step.step for step in tail.read()] == [2]


def test_an_overwritten_journal_returns_nothing_of_the_earlier_one(tmp_path: Path) -> None:
    path, spare = tmp_path / "epoch-0003.journal", tmp_path / "spare.journal"
    taker = Taker(path)
    taker.add(b"a" * 10)
    taker.commit()
    tail = JournalTail(path)
    (step,) = tail.read()
    taker.journal.end(True, "", {})
    path.rename(spare)
    other = Taker(tmp_path / "epoch-0004.journal", spare=spare)
    other.add(b"b" * 10)
    other.commit()
    assert list(tail.read()) == []
    assert tail.bytes_at(int(step.captures[0]["offset"]), 10) is None
    assert not tail.has_name()


def test_a_file_that_is_not_a_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "epoch-0000.journal"
    path.write_bytes(b"no journal" * 100)
    with pytest.raises(FileRefused, match="does not start with"):
        JournalTail(path)
