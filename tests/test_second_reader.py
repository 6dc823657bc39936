"""A reader that was written from `schemas/` alone reads journals and capture files as the package does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import probes
from probes.clock import SeriesKey
from probes.journal.writer import Journal
from probes.reader.ranks.full import put_together
from probes.run_directory.seal import JournalSealer
from probes.signature import Descriptor
from tests import independent_reader as second
from tests.conftest import SEED
from tests.journal.journals import Taker, read
from tests.proof.runs import One, captures, write_run

TEXTS: dict[str, object] = {"spec": "", "manifest": {}}


def written(epoch: int) -> list[second.Stored]:
    """The result of `captures`, as an independent reader would write it."""
    return [
        second.Stored(tuple(one.key), one.dtype, (epoch, one.step, 0, one.call, 0), one.bits.shape, one.bits.tobytes(), {}, 0)  # type: ignore[arg-type]  # a list of four texts
        for one in captures(epoch)
    ]


def bare(found: Iterator[second.Stored] | list[second.Stored]) -> list[tuple[object, ...]]:
    """Captures without attributes and order, sorted."""
    return sorted(((*one.key, one.dtype, *one.clock), one.shape, one.payload) for one in found)


def test_a_journal_and_the_file_it_becomes_hold_the_same(tmp_path: Path) -> None:
    write_run(tmp_path / "j", epochs=1, seals=False)
    head, found, end = second.journal((tmp_path / "j" / "epoch-0000.journal").read_bytes())
    assert head["format"] == "journal.v1"
    assert end is not None
    assert end["complete"] is True
    assert bare(found) == bare(written(0))
    write_run(tmp_path / "s", epochs=1)
    sealed = second.capture_file(tmp_path / "s" / "epoch-0000.h5")
    assert bare(sealed) == bare(found)
    orders = {(one.key, one.dtype, one.clock): one.order for one in found}
    assert {(one.key, one.dtype, one.clock): one.order for one in sealed} == orders


@pytest.mark.parametrize("compression", ["gzip", "zstd", "blosc2"])
def test_chunks_are_decoded(compression: str, tmp_path: Path) -> None:
    def large(epoch: int) -> Iterator[One]:
        yield from captures(epoch)
        made = np.random.default_rng(epoch)
        for step in range(3):
            yield One(SeriesKey("wide", "fc1", "output", "train"), "float32", made.integers(0, 9, (70, 2, 600)).astype("f4"), step)

    write_run(tmp_path, epochs=1, source=large, compression=compression)
    found = second.capture_file(tmp_path / "epoch-0000.h5")
    expected = {(one.key, one.step, one.call, one.dtype): one.bits.tobytes() for one in large(0)}
    assert {(SeriesKey(*one.key), one.clock[1], one.clock[3], one.dtype): one.payload for one in found} == expected


@pytest.mark.parametrize("durability", ["process", "power"])
def test_committed_steps_are_those_that_the_package_states(durability: str, tmp_path: Path) -> None:
    """Frames, large captures, aborted steps, and the journal cut at any byte."""
    chance = random.Random(SEED)
    taker = Taker(tmp_path / "epoch-0003.journal", durability=durability, buffer_bytes=4096)
    for step in range(12):
        for _ in range(chance.randrange(4)):
            taker.add(chance.randbytes(chance.choice((0, 1, 7, 64, 900, 5000, 9000))))
        if chance.random() < 0.2:
            taker.journal.abort()
            taker.step = []
        else:
            taker.commit({"ids": [step]})
    taker.journal.end(True, "", {})
    taker.journal.close()
    content = (tmp_path / "epoch-0003.journal").read_bytes()
    assert [one.payload for one in second.journal(content)[1]] == [data for step in taker.acknowledged for data in step]
    for size in (chance.randrange(300, len(content)) for _ in range(40)):
        cut = tmp_path / "cut.journal"
        cut.write_bytes(content[:size])
        expected = [data for step in read(cut)[1] for data in step]
        assert [one.payload for one in second.journal(content[:size])[1]] == expected, size
        flipped = bytearray(content)
        flipped[size] ^= 1 << chance.randrange(8)
        if durability == "power":
            cut.write_bytes(flipped)
            assert [one.payload for one in second.journal(bytes(flipped))[1]] == [data for step in read(cut)[1] for data in step], size


@pytest.mark.parametrize("placements", [("S(0)", "S(1)"), ("S(1)", "R"), ("R", "R"), ("P(sum)", "S(0)")])
def test_parts_of_a_distributed_tensor_make_the_whole(placements: tuple[str, str], tmp_path: Path) -> None:
    whole = np.arange(35.0, dtype="f4").reshape(5, 7)
    parts: dict[int, second.Stored] = {}
    for rank, at in enumerate(product(range(2), range(3))):
        part, offsets = whole / (2 if "P(sum)" in placements else 1), [0, 0]
        for place, named, of in zip(at, placements, (2, 3), strict=True):
            if named[0] == "S":
                axis = int(named[2])
                pieces = np.array_split(np.arange(part.shape[axis]), of)
                offsets[axis] += int(pieces[place][0])
                part = np.take(part, pieces[place], axis)
        stated = {"placements": placements, "global_shape": whole.shape, "mesh_shape": (2, 3), "mesh_names": [], "coordinate": at}
        stated |= {"offsets": offsets, "local_shape": part.shape}
        journal = Journal.create(
            tmp_path / f"epoch-0000.rank-{rank:04d}.journal", {"run_id": "r", "epoch": 0, "attempt": 1, "rank": rank} | TEXTS
        )
        number = journal.descriptor(
            Descriptor(SeriesKey("a", "fc", "output", "train"), "float32", part.shape, None, {}, {"sharding": stated})
        )
        part = np.ascontiguousarray(part, "f4")
        journal.add(number, 0, 0, 0, 0, part.ctypes.data, part.nbytes)
        journal.commit("train", 0, 0)
        journal.end(True, "", {})
        (parts[rank],) = second.capture_file(tmp_path / JournalSealer(tmp_path).seal(f"epoch-0000.rank-{rank:04d}.journal").file)
    assert np.array_equal(second.whole(parts), whole)
    assert np.array_equal(
        put_together(
            {
                at: np.frombuffer(parts[rank].payload, "<f4").reshape(parts[rank].shape)
                for rank, at in enumerate(product(range(2), range(3)))
            },
            placements,
            "w",
        ),
        whole,
    )


def test_the_package_and_another_reader_give_the_same_numbers(tmp_path: Path) -> None:
    write_run(tmp_path, epochs=1)
    opened = probes.open(tmp_path)
    sealed = second.capture_file(tmp_path / "epoch-0000.h5")
    for key in {one.key for one in sealed if one.dtype != "bfloat16"}:  # numpy has none
        found = [np.asarray(capture.value).tobytes() for capture in opened.sel(phase=key[3])[key[:3]]]
        assert found == [one.payload for one in sealed if one.key == key]
