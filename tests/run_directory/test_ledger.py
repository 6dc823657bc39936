"""The ledger: every line names the one before."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from probes.digest import canonical
from probes.errors import FileRefused, StorageError
from probes.run_directory.ledger import Ledger, current
from probes.run_directory.ledger_lines import FIRST, read_ledger, series_rows


def facts(epoch: int, attempt: int = 1, complete: bool = True, segment: int | None = None, rank: int = 0) -> dict[str, Any]:
    return {
        "file": f"epoch-{epoch:04d}{f'.a{attempt}' if attempt > 1 else ''}.h5",
        "bytes": 1000 + epoch,
        "file_blake3": "ab" * 32,
        "epoch": epoch,
        "attempt": attempt,
        "rank": rank,
        "segment": segment,
        "complete": complete,
        "reason": "" if complete else "killed",
        "captures": 7,
        "captures_root": "cd" * 32,
        "epoch_root": "ef" * 32,
    }


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.jsonl")
    for epoch in range(4):
        made.append(facts(epoch))
    return made


def test_the_chain_follows_from_the_definition(ledger: Ledger) -> None:
    previous = "0" * 64
    for index, line in enumerate(ledger.path.read_bytes().splitlines()):
        entry = json.loads(line)
        assert line == json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        assert (entry["format"], entry["index"], entry["previous"]) == ("ledger.v2", index, previous)
        previous = blake3(line).hexdigest()
    assert ledger.head == previous


def test_the_first_line_of_the_documented_example_has_the_documented_hash(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "schemas" / "run-directory.v1.md").read_text("utf-8")
    made = Ledger(tmp_path / "ledger.jsonl")
    row = {"probe": "acts", "target": "features.0", "leaf": "output", "phase": "train", "dtype": "float32", "captures": 7}
    made.append({**facts(1), "series": [{**row, "shape": [None, 3], "dims": None, "bytes": 1200, "epochs": [0, 1]}], "remarks": False})
    line = made.path.read_text("utf-8").rstrip("\n")
    assert line in text
    assert made.head in text
    assert blake3(line.encode()).hexdigest() == made.head


def test_a_ledger_is_read_back(ledger: Ledger) -> None:
    again = Ledger(ledger.path)
    assert again.entries == ledger.entries
    assert again.head == ledger.head
    assert again.entry("epoch-0002.h5") == ledger.entries[2]
    assert again.entry("epoch-0009.h5") is None
    assert not read_ledger(ledger.path).breaches


def test_a_missing_ledger_reads_as_an_empty_one(tmp_path: Path) -> None:
    made = Ledger(tmp_path / "ledger.jsonl")
    assert (made.entries, made.head) == ([], FIRST)


def test_half_a_line_is_not_an_entry_and_is_cut_off_by_the_next(ledger: Ledger) -> None:
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole + b'{"attempt":1,')
    again = Ledger(ledger.path)
    assert again.head == ledger.head
    again.append(facts(4))
    assert ledger.path.read_bytes().startswith(whole)
    assert len(Ledger(ledger.path).entries) == 5


def test_a_line_that_another_process_added_is_kept(ledger: Ledger) -> None:
    Ledger(ledger.path).append(facts(4))
    ledger.append(facts(5))
    assert [entry.epoch for entry in Ledger(ledger.path).entries] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("change", [(b'"captures":7', b'"captures":8'), (b'"complete":true', b'"complete":false')])
def test_a_changed_line_breaks_the_chain(ledger: Ledger, change: tuple[bytes, bytes]) -> None:
    lines = ledger.path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(*change)
    ledger.path.write_bytes(b"\n".join(lines))
    with pytest.raises(FileRefused, match=r"ledger-edited.*line 3"):
        Ledger(ledger.path)


@pytest.mark.parametrize("order", [[0, 2, 3], [0, 2, 1, 3], [1, 2, 3]], ids=["taken out", "swapped", "first gone"])
def test_a_missing_or_moved_line_breaks_the_chain(ledger: Ledger, order: list[int]) -> None:
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    ledger.path.write_bytes(b"".join(lines[number] for number in order))
    with pytest.raises(FileRefused, match=r"ledger-(line-missing|reordered|edited)"):
        Ledger(ledger.path)


@pytest.mark.parametrize("line", [b"", b"{", b"[1]", b'{"format":"ledger.v1"}', b"\xff", b"[" * 100_000])
def test_a_line_that_is_not_an_entry_is_refused(ledger: Ledger, line: bytes) -> None:
    ledger.path.write_bytes(line + b"\n")
    with pytest.raises(FileRefused, match="is not a ledger line"):
        Ledger(ledger.path)


def test_an_entry_in_another_spelling_is_refused(ledger: Ledger) -> None:
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b'"bytes":1000', b'"bytes": 1000'))
    with pytest.raises(FileRefused, match="not in the canonical form"):
        Ledger(ledger.path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": 9}, "is not the name of a file of epoch 9"),
        ({"attempt": 2}, "is not the name of a file of attempt 2"),
        ({"segment": 1}, "is not the name of a file of segment 1"),
        ({"rank": 1}, "is not the name of a file of rank 1"),
        ({"file": "epoch-0009.rank-0001.h5"}, 'belongs in the ledger "ledger.rank-0001.jsonl"'),
        ({"file": "epoch-00009.h5"}, "is not the name of a capture file"),
        ({"file": "../epoch-0009.h5"}, "is not the name of a capture file"),
        ({"file": "epoch-0009.journal"}, "is not the name of a capture file"),
        ({"epoch": 1 << 32}, "is not a ledger line"),
        ({"bytes": -1}, "is not a ledger line"),
        ({"file_blake3": "AB" * 32}, "is not a ledger line"),
    ],
)
def test_a_line_agrees_with_the_name_of_its_file_and_its_ledger(ledger: Ledger, change: dict[str, Any], message: str) -> None:
    made = {"format": "ledger.v1", "index": 4, "previous": ledger.head, "supersedes": None, **facts(4), **change}
    with ledger.path.open("ab") as file:
        file.write(canonical(made) + b"\n")
    with pytest.raises(FileRefused, match=re.escape(message)):
        Ledger(ledger.path)


ROW = {
    "probe": "a",
    "target": "",
    "leaf": "output",
    "phase": "train",
    "dtype": "int8",
    "captures": 1,
    "shape": [],
    "dims": None,
    "bytes": 1,
}


def test_lines_that_list_the_same_series_name_the_first_one(tmp_path: Path) -> None:
    made = Ledger(tmp_path / "ledger.jsonl")
    one, other = [{**ROW, "epochs": None}], [{**ROW, "captures": 2, "epochs": None}]
    for epoch, rows in enumerate([one, one, one, other, other, one, None, one]):
        made.append({**facts(epoch), "series": rows})
    read = Ledger(made.path).entries
    assert [len(line.series) if isinstance(line.series, list) else line.series for line in read] == [1, 0, 0, 1, 3, 1, None, 1]
    listed = [series_rows(read, line) for line in read]
    assert [rows and rows[0].captures for rows in listed] == [1, 1, 1, 2, 2, 1, None, 1]


def test_series_that_would_make_a_line_or_the_ledger_too_long_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Ledger(tmp_path / "ledger.jsonl")
    many = [{**ROW, "target": f"layer.{number}", "epochs": None} for number in range(40_000)]
    assert made.append({**facts(0), "series": many}).series is None
    one = [{**ROW, "epochs": None}]
    assert isinstance(made.append({**facts(1), "series": one}).series, list)
    monkeypatch.setattr("probes.run_directory.ledger.LARGEST", made.path.stat().st_size + 900)
    assert [made.append({**facts(2 + number), "series": one}).series for number in range(3)] == [1, None, None]
    assert len(Ledger(made.path).entries) == 5


def test_a_ledger_of_an_earlier_release_is_continued(tmp_path: Path) -> None:
    old = {"format": "ledger.v1", "index": 0, "previous": FIRST, "supersedes": None, **facts(0)}
    (tmp_path / "ledger.jsonl").write_bytes(canonical(old) + b"\n")
    continued = Ledger(tmp_path / "ledger.jsonl")
    continued.append({**facts(1), "series": [{**ROW, "epochs": None}], "remarks": False})
    read = Ledger(continued.path).entries
    assert [(line.format, line.remarks, series_rows(read, line) is None) for line in read] == [
        ("ledger.v1", True, True),
        ("ledger.v2", False, False),
    ]


@pytest.mark.parametrize("series", [4, 5, 3, 1 << 62])
def test_the_series_of_a_line_are_those_of_a_line_before_that_lists_them(ledger: Ledger, series: int) -> None:
    made = {"format": "ledger.v2", "index": 4, "previous": ledger.head, "supersedes": None, **facts(4), "series": series, "remarks": False}
    with ledger.path.open("ab") as file:
        file.write(canonical(made) + b"\n")
    with pytest.raises(FileRefused, match=f"line 5 names line {series + 1} for its series, which lists none"):
        Ledger(ledger.path)


def test_a_ledger_that_is_a_link_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "ledger.rank-0001.jsonl").symlink_to(ledger.path)
    with pytest.raises(FileRefused, match="is a link"):
        Ledger(tmp_path / "ledger.rank-0001.jsonl")


def test_an_attempt_supersedes_the_one_before(ledger: Ledger) -> None:
    entry = ledger.append(facts(3, attempt=2))
    assert entry.supersedes == "epoch-0003.h5"
    assert current(ledger.entries)[3, 0, None] == entry


def test_an_incomplete_attempt_never_supersedes_a_complete_one(ledger: Ledger) -> None:
    assert ledger.append(facts(3, attempt=2, complete=False)).supersedes is None
    assert current(ledger.entries)[3, 0, None].attempt == 1


def test_segments_and_ranks_do_not_supersede_each_other(ledger: Ledger) -> None:
    assert ledger.append(facts(3, attempt=2, segment=1)).supersedes is None
    assert ledger.append(facts(3, attempt=2, rank=1)).supersedes is None


def test_a_ledger_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        Ledger(tmp_path / "no such directory" / "ledger.jsonl").append(facts(0))


def test_a_last_line_that_was_written_in_part_is_not_an_entry(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(facts(0))
    whole = ledger.path.read_bytes()
    ledger.append(facts(1))
    torn = bytearray(ledger.path.read_bytes())
    torn[len(whole) : len(whole) + 100] = bytes(100)
    ledger.path.write_bytes(torn)
    again = Ledger(ledger.path)
    assert [entry.epoch for entry in again.entries] == [0]
    again.append(facts(2))
    assert [entry.epoch for entry in Ledger(ledger.path).entries] == [0, 2]


def test_appends_of_a_first_attempt_do_not_look_at_all_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.run_directory.ledger.current", None)
    made = Ledger(tmp_path / "ledger.jsonl")
    for segment in range(1, 5):
        made.append({**facts(0, segment=segment, complete=False), "file": f"epoch-0000.s{segment:04d}.h5"})
    assert [entry.supersedes for entry in made.entries] == [None] * 4
    assert Ledger(made.path).entry("epoch-0000.s0002.h5") == made.entries[1]
    assert made.entry("epoch-0000.s0005.h5") is None
