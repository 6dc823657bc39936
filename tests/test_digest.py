from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from probes.clock import Clock, SeriesKey
from probes.digest import (
    BLOCK_BYTES,
    EPOCH_ROOT_FIELDS,
    BlockDigests,
    blake3_hex,
    blocks,
    canonical,
    captures_root,
    clock_row,
    epoch_root,
    file_hex,
    series_hex,
    shape_row,
)

KEY = SeriesKey("acts", "fc1", "output", "train")
OTHER = SeriesKey("acts", "fc1", "output", "eval")


def test_canonical_json_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical({"b": 1, "a": [True, None, 0.5, "ü"]}) == canonical({"a": [True, None, 0.5, "ü"], "b": 1})
    assert canonical({"b": 1, "a": [True, None, 0.5, "ü"]}) == '{"a":[true,null,0.5,"ü"],"b":1}'.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        canonical({"x": value})


def test_a_block_ends_with_the_capture_that_fills_it() -> None:
    assert blocks([]) == []
    assert blocks([0]) == [1]
    assert blocks([40_000, 40_000, 40_000]) == [2, 3]
    assert blocks([BLOCK_BYTES - 1, 1, 1]) == [2, 3]


def test_a_large_capture_is_a_block_of_its_own() -> None:
    assert blocks([10, BLOCK_BYTES, 10]) == [1, 2, 3]
    assert blocks([BLOCK_BYTES, BLOCK_BYTES]) == [1, 2]


sizes = st.lists(st.integers(0, 3 * BLOCK_BYTES) | st.integers(0, 100), max_size=20)


@given(sizes)
def test_blocks_cover_every_capture_once(given_sizes: list[int]) -> None:
    ends = blocks(given_sizes)
    assert ends == sorted(set(ends))
    assert (ends[-1] if ends else 0) == len(given_sizes)


@given(sizes, st.integers(1, BLOCK_BYTES))
def test_a_stream_of_pieces_has_the_digests_of_the_blocks(given_sizes: list[int], piece: int) -> None:
    payloads = [bytes([i % 251]) * size for i, size in enumerate(given_sizes)]
    stream = BlockDigests()
    for payload in payloads:
        stream.begin(len(payload))
        for at in range(0, len(payload), piece):
            stream.update(payload[at : at + piece])
    starts = [0, *blocks(given_sizes)]
    whole = [blake3(b"".join(payloads[a:b])).digest() for a, b in pairwise(starts)]
    assert stream.finish() == b"".join(whole)


def test_a_payload_at_hand_is_added_in_one_call() -> None:
    stream = BlockDigests()
    stream.add(b"abc")
    stream.add(memoryview(b"def"))
    assert stream.finish() == blake3(b"abcdef").digest()


def test_tables_are_little_endian_and_packed() -> None:
    row = clock_row(Clock(1, "train", 2, 99, -1, 3, 4, 5))
    assert row == b"".join(n.to_bytes(4, "little", signed=True) for n in (1, 2, -1, 3, 4, 5))
    assert shape_row((2, 3)) == (2).to_bytes(4, "little") + (2).to_bytes(8, "little") + (3).to_bytes(8, "little")
    assert shape_row(()) == bytes(4)


def test_a_series_digest_is_the_hash_of_what_the_format_says() -> None:
    head = b'{"blocks":1,"captures":2,"dtype":"float32","leaf":"output","phase":"train","probe":"acts","target":"fc1"}\n'
    assert series_hex(KEY, "float32", 2, b"clocks", b"shapes", bytes(32)) == blake3_hex(head + b"clocks" + b"shapes" + bytes(32))


def test_the_captures_root_does_not_depend_on_any_order() -> None:
    series = [(KEY, "float32", "00"), (OTHER, "float32", "11")]
    gaps = [(KEY, "unused", 2), (OTHER, "unused", 1)]
    assert captures_root(series, gaps) == captures_root(reversed(series), reversed(gaps))


def test_the_captures_root_changes_with_each_of_its_parts() -> None:
    roots = {
        captures_root([(KEY, "float32", "00")], []),
        captures_root([(OTHER, "float32", "00")], []),
        captures_root([(KEY, "float16", "00")], []),
        captures_root([(KEY, "float32", "01")], []),
        captures_root([(KEY, "float32", "00")], [(KEY, "unused", 1)]),
        captures_root([(KEY, "float32", "00")], [(KEY, "unused", 2)]),
        captures_root([(KEY, "float32", "00")], [(KEY, "lost", 2)]),
        captures_root([], []),
    }
    assert len(roots) == 8


def test_the_epoch_root_covers_its_fields_and_nothing_else() -> None:
    facts = {name: name for name in EPOCH_ROOT_FIELDS}
    assert epoch_root({**facts, "host": "a"}) == epoch_root({**facts, "host": "b"})
    assert len({epoch_root({**facts, name: "changed"}) for name in EPOCH_ROOT_FIELDS} | {epoch_root(facts)}) == len(EPOCH_ROOT_FIELDS) + 1
    assert epoch_root({}) == epoch_root(dict.fromkeys(EPOCH_ROOT_FIELDS))


def test_a_file_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 9000)
    assert file_hex(path) == blake3_hex(path.read_bytes())


def test_importing_it_brings_neither_torch_nor_numpy() -> None:
    code = "import sys, probes.digest; print(sorted({'torch', 'numpy', 'h5py'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
