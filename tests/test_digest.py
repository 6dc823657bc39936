from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from struct import pack, unpack
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from probes.capture_file.series_part import CLOCKS, SeriesPart
from probes.clock import SeriesKey
from probes.digest import (
    BLOCK_BYTES,
    EPOCH_ROOT_FIELDS,
    BlockDigests,
    blake3_hex,
    blocks,
    canonical,
    canonical_v2,
    captures_root,
    epoch_root,
    file_hex,
    series_hex,
    shape_row,
)
from probes.proof.series_check import clock_table

KEY = SeriesKey("acts", "fc1", "output", "train")
OTHER = SeriesKey("acts", "fc1", "output", "eval")


def test_canonical_json_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical({"b": 1, "a": [True, None, 0.5, "ü"]}) == canonical({"a": [True, None, 0.5, "ü"], "b": 1})
    assert canonical({"b": 1, "a": [True, None, 0.5, "ü"]}) == '{"a":[true,null,0.5,"ü"],"b":1}'.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_values_without_a_canonical_form_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        canonical({"x": value})


def test_a_block_ends_with_the_capture_that_fills_it() -> None:
    assert blocks([]) == []
    assert blocks([0]) == [1]
    assert blocks([40_000, 40_000, 40_000]) == [2, 3]
    assert blocks([BLOCK_BYTES - 1, 1, 1]) == [2, 3]


def test_a_large_capture_is_a_separate_block() -> None:
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
    part = SimpleNamespace(clocks=np.array([(1, 2, 99, -1, 3, 4, 5)], CLOCKS))
    assert clock_table(cast(SeriesPart, part)) == b"".join(n.to_bytes(4, "little", signed=True) for n in (1, 2, -1, 3, 4, 5))
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


def test_importing_the_module_does_not_import_torch_or_numpy() -> None:
    code = "import sys, probes.digest; print(sorted({'torch', 'numpy', 'h5py'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# IEEE 754 bits and text, from appendix B of RFC 8785.
NUMBERS = {
    0x0000000000000000: "0", 0x8000000000000000: "0", 0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
    0x7FEFFFFFFFFFFFFF: "1.7976931348623157e+308", 0xFFEFFFFFFFFFFFFF: "-1.7976931348623157e+308", 0x4340000000000000: "9007199254740992",
    0xC340000000000000: "-9007199254740992", 0x4430000000000000: "295147905179352830000", 0x44B52D02C7E14AF5: "9.999999999999997e+22",
    0x44B52D02C7E14AF6: "1e+23", 0x44B52D02C7E14AF7: "1.0000000000000001e+23", 0x444B1AE4D6E2EF4E: "999999999999999700000",
    0x444B1AE4D6E2EF4F: "999999999999999900000", 0x444B1AE4D6E2EF50: "1e+21", 0x3EB0C6F7A0B5ED8C: "9.999999999999997e-7",
    0x3EB0C6F7A0B5ED8D: "0.000001", 0x41B3DE4355555553: "333333333.3333332", 0x41B3DE4355555554: "333333333.33333325",
    0x41B3DE4355555555: "333333333.3333333", 0x41B3DE4355555556: "333333333.3333334", 0x41B3DE4355555557: "333333333.33333343",
    0xBECBF647612F3696: "-0.0000033333333333333333", 0x43143FF3C1CB0959: "1424953923781206.2",
}  # fmt: skip


@pytest.mark.parametrize("bits", NUMBERS)
def test_numbers_are_written_as_rfc_8785_lists_them(bits: int) -> None:
    assert canonical_v2(unpack("<d", pack("<Q", bits))[0]) == NUMBERS[bits].encode()


def test_keys_are_sorted_by_their_utf_16_units() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\u00f6"]
    assert list(json.loads(canonical_v2(dict.fromkeys(keys, 0)))) == ["\r", "1", "\x80", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\ud800": 1}])
def test_values_without_a_canonical_form_by_rfc_8785_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        canonical_v2(value)


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])), st.lists))
def test_both_forms_are_equal_without_fractions_and_objects(value: object) -> None:
    assert canonical_v2(value) == canonical(value)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_javascript_writes_the_same_bytes() -> None:
    program = """
        const form = (v) => v === null || typeof v !== 'object' ? JSON.stringify(v) : Array.isArray(v) ? `[${v.map(form)}]`
          : `{${Object.keys(v).sort().map((k) => JSON.stringify(k) + ':' + form(v[k]))}}`;
        const lines = require('fs').readFileSync(0, 'utf8').split('\\n').filter((line) => line);
        process.stdout.write(lines.map((line) => Buffer.from(form(JSON.parse(line))).toString('hex')).join('\\n'));
    """
    chance = random.Random(0)
    values: list[object] = [unpack("<d", pack("<Q", chance.getrandbits(64) & ~(1 << 62)))[0] for _ in range(2000)]
    values += [chance.randrange(10 ** chance.randrange(1, 22)) * 10.0 ** chance.randrange(-30, 5) for _ in range(2000)]
    values += [
        {chr(chance.choice([chance.randrange(32, 0xD800), chance.randrange(0xE000, 0x110000)])): 1 for _ in range(6)} for _ in range(200)
    ]
    text = "\n".join(map(json.dumps, values))
    done = subprocess.run(["node", "-e", program], input=text, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == [canonical_v2(value).hex() for value in values]
