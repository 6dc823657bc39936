from __future__ import annotations

import json
import os
import random
from pathlib import Path
from zlib import crc32

import pytest

from probes.errors import FileRefused, StorageError
from probes.journal.record import ENTRY, FIXED, FORMAT, NO_DIGEST, RecordHeader, RecordKind, link, place, seal_header
from probes.journal.record_reader import JournalBytes, RecordReader
from probes.journal.scan import Scan, scan
from probes.journal.writer import Journal
from tests.journal.journals import HEAD, Taker, read, steps

KEY = {"probe": "p", "target": "t", "leaf": "output", "phase": "train"}
ABOUT = {"id": 0, "key": KEY, "dtype": "uint8", "shape": [4], "dims": None, "coords": {}, "attrs": {}}


def small_journal(path: Path, durability: str, extent: bool = True) -> Taker:
    taker = Taker(path, durability=durability, buffer_bytes=4096)
    for number in range(4):
        taker.add(bytes([number]) * 20)
        taker.add(b"x" * number)
        taker.commit({"ids": [number]})
    if extent:
        taker.add(b"y" * 4096)  # as large as the buffer
        taker.commit()
    taker.journal.end(True, "done", {})
    return taker


def spans(path: Path) -> list[tuple[int, int]]:
    """Where each record starts and stops."""
    descriptor = os.open(path, os.O_RDONLY)
    chain = RecordReader(JournalBytes(path, descriptor))
    found = [(0, chain.end), *((record.body - 64, record.stop) for record in chain)]
    os.close(descriptor)
    return found


def scan_bytes(path: Path, raw: bytes) -> tuple[Scan, list[list[bytes]]] | None:
    path.write_bytes(raw)
    try:
        return read(path)
    except FileRefused:
        return None


def forge(path: Path, records: list[tuple[int, bytes, bytes, int]], **head: object) -> None:
    """A journal of (kind, checked, rest, flags) that chains, whatever it says."""
    text = json.dumps({"format": FORMAT, "nonce": "00" * 16, "boot_id": "here", "durability": "process", "epoch": 0} | head).encode()
    raw, check = bytearray(), crc32(bytes(16))
    for sequence, (kind, checked, rest, flags) in enumerate([(RecordKind.HEAD, text, b"", 0), *records]):
        raw += bytes(place(len(raw)) - len(raw))
        fields = RecordHeader(kind, flags, sequence, len(checked) + len(rest), len(checked), NO_DIGEST).fields()
        check = link(check, fields, (checked,))
        raw += seal_header(fields, check) + checked + rest
    path.write_bytes(raw)


def descriptor(**changes: object) -> tuple[int, bytes, bytes, int]:
    return RecordKind.DESCRIPTOR, json.dumps(ABOUT | changes).encode(), b"", 0


def frame(
    rows: list[tuple[int, ...]], annex: bytes = b'{"phases":{"0":"train"}}', phase: int = 0, flags: int = 1
) -> tuple[int, bytes, bytes, int]:
    table = b"".join(ENTRY.pack(*row) for row in rows)
    return RecordKind.FRAME, FIXED.pack(0, phase, len(rows), len(annex), 0) + table + annex, bytes(64), flags


@pytest.mark.parametrize(
    ("extent", "stride"), [(False, 5), (True, 61), *(pytest.param(*one, marks=pytest.mark.torture) for one in ((False, 1), (True, 17)))]
)
@pytest.mark.parametrize("durability", ["process", "power"])
def test_every_truncation_keeps_the_commits_before_it(tmp_path: Path, durability: str, extent: bool, stride: int) -> None:
    taker = small_journal(tmp_path / "a.journal", durability, extent)
    raw = taker.journal.path.read_bytes()
    ends = [stop for _, stop in spans(taker.journal.path)]
    seen = 0
    for size in sorted({*range(0, len(raw), stride), *(end + by for end in ends for by in (-1, 0, 1) if end + by <= len(raw))}):
        found = scan_bytes(tmp_path / "cut", raw[:size])
        if found is None:
            assert size < ends[0]
            continue
        assert found[1] == taker.acknowledged[: len(found[1])]
        assert len(found[1]) >= seen
        assert found[0].good_bytes == max(end for end in ends if end <= size)
        assert found[0].state == ("complete" if size >= ends[-1] else "open" if size in ends else "torn")
        seen = len(found[1])
    assert seen == len(taker.acknowledged)


def check_flip(tmp_path: Path, taker: Taker, raw: bytes, at: int, bit: int, inside: bool) -> None:
    flipped = bytearray(raw)
    flipped[at] ^= 1 << bit
    found = scan_bytes(tmp_path / "flipped", bytes(flipped))
    if found is None:
        assert inside
        return
    whole = taker.acknowledged
    one_less = [whole[:index] + whole[index + 1 :] for index in range(len(whole))]  # a damaged payload costs its own step alone
    assert found[1] in one_less if found[0].damaged_commits else found[1] == whole[: len(found[1])]
    assert found[0].state == ("torn" if inside else "complete"), at


def flips(tmp_path: Path, bits: int, extent: bool, stride: int = 1) -> None:
    taker = small_journal(tmp_path / "a.journal", "power", extent)
    raw = taker.journal.path.read_bytes()
    records = spans(taker.journal.path)
    for at in range(0, len(raw), stride):
        inside = any(start <= at < stop for start, stop in records)
        for bit in random.Random(at).sample(range(8), bits):
            check_flip(tmp_path, taker, raw, at, bit, inside)


def test_a_flipped_bit_in_a_byte_of_a_power_journal_is_noticed(tmp_path: Path) -> None:
    flips(tmp_path, 1, extent=False, stride=5)


@pytest.mark.torture
def test_every_flipped_bit_of_a_power_journal_is_noticed(tmp_path: Path) -> None:
    flips(tmp_path, 8, extent=True)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.torture)])
def test_a_flipped_bit_in_headers_and_tables_of_a_process_journal_is_noticed(tmp_path: Path, stride: int) -> None:
    taker = small_journal(tmp_path / "a.journal", "process")
    path = taker.journal.path
    raw = path.read_bytes()
    descriptor = os.open(path, os.O_RDONLY)
    checked = [(record.body - 64, record.body + record.header.checked) for record in RecordReader(JournalBytes(path, descriptor))]
    os.close(descriptor)
    for start, stop in checked:
        for at in range(start, stop, stride):
            check_flip(tmp_path, taker, raw, at, at % 8, inside=True)


def test_scanning_changes_nothing_and_works_on_a_live_journal(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal")
    for number in range(5):
        taker.add(bytes([number]) * 10)
        taker.commit()
        before = taker.journal.path.read_bytes()
        found, payloads = read(taker.journal.path)
        assert (found.state, payloads) == ("open", taker.acknowledged)
        assert taker.journal.path.read_bytes() == before
    taker.journal.close()


LARGE = bytes(range(256)) * 600


def test_after_a_reboot_only_synced_or_proven_steps_are_trusted(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal")
    for index, payloads in enumerate(([b"one", b""], [b"two", LARGE], [b"three"])):
        for payload in payloads:
            taker.add(payload)
        taker.commit({"ids": [index]})
    found, payloads = read(taker.journal.path, boot="another")
    assert (found.trusted, found.untrusted_commits, payloads) == (False, 1, [[b"one", b""], [b"three"]])
    assert found.annexes == ((0, {"ids": [0]}), (1, {"ids": [2]}))
    assert (found.state, found.end, found.left_out) == ("torn", None, "1 step without proof that all bytes came to the device")
    assert read(taker.journal.path, boot="another", unproven=True)[1] == taker.acknowledged == read(taker.journal.path)[1]
    taker.journal.end(True, "done", {})
    found, payloads = read(taker.journal.path, boot="another")
    assert (found.trusted, found.untrusted_commits, payloads, found.state) == (True, 0, taker.acknowledged, "complete")


def test_a_large_capture_of_an_interrupted_step_belongs_to_that_step(tmp_path: Path) -> None:
    """The extents of the outer step are in the file before the step within it is committed."""
    taker = Taker(tmp_path / "a.journal")
    taker.add(LARGE)
    outer, taker.step = taker.step, []
    taker.journal.pause("outer")
    taker.add(b"within")
    taker.commit()
    taker.journal.resume("outer")
    taker.step = outer
    taker.commit()
    found, payloads = read(taker.journal.path, boot="another")
    assert (found.untrusted_commits, payloads) == (1, [[b"within"]])
    taker.journal.close()


def test_a_power_journal_is_trusted_after_a_reboot(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal", durability="power")
    taker.add(b"one")
    taker.commit()
    assert read(taker.journal.path, boot="another")[1] == [[b"one"]]
    taker.journal.close()


def test_an_empty_journal_has_no_captures(tmp_path: Path) -> None:
    Journal.create(tmp_path / "a.journal", HEAD).close()
    found = scan(tmp_path / "a.journal")
    assert (len(found.captures), len(found.commits), found.state, found.trusted) == (0, 0, "open", True)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "journal-empty"),
        (b"PRJ", "journal-empty"),
        (b"PRJ1" + bytes(20), "journal-empty"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "not-a-journal"),
        (bytes(5000), "journal-empty"),
        (bytes(5000) + b"PRJ1", "not-a-journal"),
        (b"\0x" * 100, "not-a-journal"),
    ],
)
def test_a_file_that_is_not_a_journal_is_refused_with_its_code(tmp_path: Path, raw: bytes, code: str) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(raw)
    with pytest.raises(FileRefused) as caught:
        scan(path)
    assert caught.value.code == code
    assert "a.journal" in str(caught.value)


def test_a_flipped_length_in_the_head_does_not_look_like_an_empty_journal(tmp_path: Path) -> None:
    path = small_journal(tmp_path / "a.journal", "process").journal.path
    raw = bytearray(path.read_bytes())
    raw[16 + 7] ^= 0x40
    path.write_bytes(raw)
    with pytest.raises(FileRefused) as caught:
        scan(path)
    assert caught.value.code == "not-a-journal"


def test_a_journal_of_a_later_format_is_refused_by_name(tmp_path: Path) -> None:
    forge(tmp_path / "a", [], format="journal.v2")
    with pytest.raises(FileRefused, match=r"unknown-format.*`journal.v2`; this release reads `journal.v1`"):
        scan(tmp_path / "a")


def test_a_missing_file_and_a_pipe_are_refused_without_waiting(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        scan(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileRefused, match="not a regular file"):
        scan(tmp_path / "pipe")


def test_a_forged_journal_without_a_false_statement_is_read(tmp_path: Path) -> None:
    forge(tmp_path / "a", [descriptor(), frame([(0, 2, 0, 0, 0, 0, 0)])])
    found = scan(tmp_path / "a", boot="here")
    assert steps(found, (tmp_path / "a").read_bytes()) == [[bytes(4)]]


ROW = (0, 2, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([frame([ROW])], id="a series that was not described"),
        pytest.param([descriptor(), frame([(0, 2, 0, 0, 0, 0, 61)])], id="a payload that runs over the end of its frame"),
        pytest.param([descriptor(), frame([(0, 2, 0, 0, 0, 0, (1 << 64) - 2)])], id="an offset that wraps around"),
        pytest.param([descriptor(), frame([(0, 0, 0, 0, 0, 0, 1 << 40)])], id="an extent behind the file"),
        pytest.param([descriptor(shape=[1 << 61, 1 << 61]), frame([ROW])], id="a shape larger than any file"),
        pytest.param([descriptor(shape=[-4])], id="a negative size"),
        pytest.param([descriptor(shape=[True])], id="a truth value as a size"),
        pytest.param([descriptor(shape=[1] * 65)], id="too many axes"),
        pytest.param([descriptor(shape=None)], id="no shape"),
        pytest.param([descriptor(dtype="object")], id="a dtype that torch does not have"),
        pytest.param([descriptor(dtype=["float32"])], id="a dtype that is no text"),
        pytest.param([descriptor(key={"probe": 1})], id="a key that is none"),
        pytest.param([descriptor(id=7)], id="a number out of order"),
        pytest.param([descriptor(), frame([ROW], annex=b"")], id="a phase without a name"),
        pytest.param([descriptor(), frame([ROW], annex=b"{")], id="an annex that is no JSON"),
        pytest.param([descriptor(), frame([ROW], annex=b"[]")], id="an annex that is no object"),
        pytest.param([descriptor(), frame([ROW], annex=b'{"phases":[1]}')], id="phases that are no object"),
        pytest.param([descriptor(), frame([ROW], annex=b'{"phases":{"3":"x"}}')], id="phases out of order"),
        pytest.param([descriptor(), frame([ROW], flags=3)], id="a frame that commits and aborts"),
        pytest.param([(RecordKind.FRAME, b"short", b"", 1)], id="a frame without its fixed part"),
        pytest.param([(RecordKind.FRAME, FIXED.pack(0, 0, 1 << 31, 0, 0), b"", 1)], id="a table longer than the frame"),
        pytest.param([(RecordKind.DESCRIPTOR, b"[" * 200_000, b"", 0)], id="text nested without end"),
        pytest.param([(RecordKind.HEAD, b"{}", b"", 0)], id="a second head"),
        pytest.param([(77, b"", b"", 0)], id="an unknown kind"),
    ],
)
def test_a_journal_that_chains_but_has_false_values_is_refused(tmp_path: Path, records: list[tuple[int, bytes, bytes, int]]) -> None:
    forge(tmp_path / "a", records)
    with pytest.raises(FileRefused) as caught:
        scan(tmp_path / "a", boot="here")
    assert caught.value.code == "journal-inconsistent"


@pytest.mark.parametrize("head", [{"nonce": 3}, {"nonce": "zz"}, {"nonce": "11" * 16}])
def test_a_head_that_does_not_chain_is_refused(tmp_path: Path, head: dict[str, object]) -> None:
    forge(tmp_path / "a", [(RecordKind.END, b"{}", b"", 0)], **head)
    with pytest.raises(FileRefused, match="not-a-journal"):
        scan(tmp_path / "a")


def test_a_length_beyond_the_file_ends_the_journal(tmp_path: Path) -> None:
    forge(tmp_path / "a", [])
    raw = (tmp_path / "a").read_bytes()
    fields = RecordHeader(RecordKind.EXTENT, 0, 1, 1 << 62, 0, NO_DIGEST).fields()
    (tmp_path / "a").write_bytes(raw + bytes(place(len(raw)) - len(raw)) + seal_header(fields, 0))
    assert scan(tmp_path / "a").state == "torn"


def test_random_bytes_in_a_good_journal_never_crash_the_scan(tmp_path: Path) -> None:
    taker = small_journal(tmp_path / "a.journal", "power")
    raw = taker.journal.path.read_bytes()
    chance = random.Random(1)
    for _ in range(300):
        mutant = bytearray(raw)
        at = chance.randrange(len(raw))
        mutant[at : at + 40] = chance.randbytes(chance.randrange(1, 40))
        found = scan_bytes(tmp_path / "mutant", bytes(mutant))
        assert found is None or found[1] == taker.acknowledged[: len(found[1])]
