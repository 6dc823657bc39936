"""The pass over the payloads: windows, runs and blocks in any order."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from probes.capture_file import payload_copy
from probes.capture_file.payload_copy import BlockHashes
from probes.digest import BLOCK_BYTES, blocks
from tests.run_directory.epochs import ACTS, Shot, payloads, sealed, stored


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, 2**32))
def test_blocks_are_hashed_for_any_order_of_their_captures(sizes: list[int], seed: int) -> None:
    order = random.Random(seed)
    data = [order.randbytes(size * 30_000) for size in sizes]
    ends = blocks([len(one) for one in data])
    hashes = BlockHashes(ends)
    runs = _runs(len(data), order)
    for first, last in runs:
        hashes.add(first, [len(one) for one in data[first:last]], memoryview(b"".join(data[first:last])))
    for block, captures in hashes.missing():
        hashes.settle(block, blake3(b"".join(data[captures.start : captures.stop])).digest())
    starts = [0, *ends[:-1]]
    assert hashes.all() == b"".join(blake3(b"".join(data[low:high])).digest() for low, high in zip(starts, ends, strict=True))


def _runs(count: int, order: random.Random) -> list[tuple[int, int]]:
    cuts = sorted({0, count, *(order.randrange(count + 1) for _ in range(3))})
    runs = list(pairwise(cuts))
    order.shuffle(runs)
    return runs


@pytest.mark.parametrize("window", [BLOCK_BYTES, 70_000, 150_000, 300_000])
def test_no_size_of_the_window_changes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    shots = [Shot(shape=(size,), step=step, dtype="uint8") for step in range(3) for size in (0, 1, 100, 5000, 200_000)]
    shots = [Shot(key=ACTS._replace(target=f"m{shot.shape[0]}"), shape=shot.shape, step=shot.step, dtype="uint8") for shot in shots]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    sealed(tmp_path / "a", shots)
    monkeypatch.setattr(payload_copy, "WINDOW", window)
    monkeypatch.setattr(payload_copy, "WIDE_WINDOW", window)
    cut = sealed(tmp_path / "b", shots)
    for size in (0, 1, 100, 5000, 200_000):
        key = ACTS._replace(target=f"m{size}")
        assert stored(cut, key) == payloads([shot for shot in shots if shot.key == key])
    ledgers = [(tmp_path / name / "ledger.jsonl").read_bytes() for name in ("a", "b")]
    roots = [line.partition(b'"captures_root":')[2][:66] for line in ledgers]
    assert roots[0] == roots[1]
