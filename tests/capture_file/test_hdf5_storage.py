"""The time that a file takes to be read grows with the bytes that it stores, whatever it states."""

from __future__ import annotations

import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import zstandard

import probes
from probes import plain_file
from probes.capture_file.codecs import ZSTD
from probes.capture_file.hdf5_read import open_file
from probes.capture_file.hdf5_storage import SLACK, StoredBytes
from probes.capture_file.read import SealedFile
from probes.capture_file.series_name import SeriesAddress
from probes.clock import SeriesKey
from probes.errors import FileRefused
from tests.journal import handmade

VALUES = f"{handmade.SERIES}/values"


def refusal(path: Path, name: str = "values") -> str:
    with pytest.raises(FileRefused) as refused:
        open_file(path).group("captures").group("acts").group(handmade.SERIES.rpartition("/")[2]).array(name)
    return refused.value.code


def chunked(path: Path, count: int, chunk: int) -> Path:
    """A file whose values are so many chunks of zeros, of so many bytes each."""
    handmade.write(path)
    packed = zstandard.compress(bytes(chunk))  # deflate needs at least a byte for each thousand
    with h5py.File(path, "r+") as file:
        del file[VALUES]
        values = file.create_dataset(VALUES, (count * chunk,), "u1", chunks=(chunk,), compression=ZSTD, allow_unknown_filter=True)
        for number in range(count):
            values.id.write_direct_chunk((number * chunk,), packed)
    return path


def test_a_file_of_holes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "epoch-0000.h5")
    with h5py.File(path, "r+") as file:
        del file[VALUES]
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        early.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(file[handmade.SERIES].id, b"values", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((4, 1 << 35, 2)), early)
    started = time.process_time()
    assert [finding.code for finding in probes.verify(path).findings] == ["shape-bomb"]
    assert "shape-bomb" in {finding.code for finding in probes.verify(tmp_path).findings}
    with pytest.raises(FileRefused, match=r"states \d{13} bytes, and the disk holds"):
        open_file(path)
    assert time.process_time() - started < 2


def test_chunks_that_unpack_to_far_more_than_the_file_has_are_refused_unless_a_person_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_file, "UNPACKED_FREE", 1 << 20)
    path = chunked(tmp_path / "epoch-0000.h5", 64, 1 << 20)
    assert refusal(path) == "shape-bomb"
    monkeypatch.setenv(plain_file.UNPACK_ALL, "1")
    read = open_file(path).group("captures").group("acts").group(handmade.SERIES.rpartition("/")[2]).array("values")
    assert not read.elements(0, 1 << 21).any()


@pytest.mark.parametrize("compression", ["zstd", "blosc2"])
def test_captures_of_one_value_are_read_however_well_they_compress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    monkeypatch.setattr(plain_file, "UNPACKED_FREE", 0)
    model = torch.nn.Sequential(torch.nn.Identity())
    spec = {
        "version": 1,
        "probes": {"mask": {"hook": "forward", "modules": ["0"]}},
        "sinks": {"file": {"kind": "hdf5", "compression": compression}},
    }
    with probes.attach(model, spec, out=tmp_path / "run"):
        for _ in range(2):
            model(torch.ones(8, 4096, 4096, dtype=torch.bool))
    assert (tmp_path / "run" / "epoch-0000.h5").stat().st_size < 1 << 20
    assert probes.verify(tmp_path / "run").ok
    assert probes.diff(tmp_path / "run", tmp_path / "run").same


def test_a_refused_file_does_not_say_that_its_line_in_the_ledger_was_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(torch.nn.Identity())
    spec = {
        "version": 1,
        "probes": {"a": {"hook": "forward", "modules": ["0"]}},
        "sinks": {"file": {"kind": "hdf5", "compression": "gzip"}},
    }
    with probes.attach(model, spec, out=tmp_path / "run"):
        model(torch.zeros(1 << 20))
    monkeypatch.setattr(plain_file, "UNPACKED_FREE", -(1 << 40))
    assert [finding.code for finding in probes.verify(tmp_path / "run").findings] == ["shape-bomb"]


def test_many_chunks_take_time_that_grows_with_their_number(tmp_path: Path) -> None:
    path = chunked(tmp_path / "epoch-0000.h5", 20_000, 1)
    started = time.process_time()
    array = open_file(path).group("captures").group("acts").group(handmade.SERIES.rpartition("/")[2]).array("values")
    assert not array.elements(0, 20_000).any()
    assert time.process_time() - started < 4  # seconds; asking the library for each chunk took 13


def test_a_chunk_that_the_index_lists_twice_and_another_never_is_refused(tmp_path: Path) -> None:
    path = chunked(tmp_path / "epoch-0000.h5", 4, 4096)
    with h5py.File(path) as file:
        offsets = [file[VALUES].id.get_chunk_info(number).chunk_offset[0] for number in range(4)]
    assert offsets == [0, 4096, 8192, 12288]
    content = path.read_bytes()
    head = np.array([len(zstandard.compress(bytes(4096))), 0], "<u4").tobytes()  # size of the chunk, and filters that it was stored without
    third, second = (head + np.array([place, 0], "<u8").tobytes() for place in (8192, 4096))
    assert content.count(third) == 1
    path.write_bytes(content.replace(third, second))
    array = open_file(path).group("captures").group("acts").group(handmade.SERIES.rpartition("/")[2]).array("values")
    with pytest.raises(FileRefused, match=r"declares a chunk at \(2,\) that it does not store"):
        array.elements(0, 4 * 4096)


def test_objects_that_share_bytes_or_have_two_names_are_refused() -> None:
    counted = StoredBytes(Path("f.h5"), 100)
    counted.store(1, "/a", 100)
    counted.store(1, "/a", 100)
    with pytest.raises(FileRefused, match="shares its bytes with other objects"):
        counted.store(2, "/b", SLACK + 1)
    counted.name(3, "/c")
    counted.name(3, "/c")
    with pytest.raises(FileRefused, match="has several names"):
        counted.name(3, "/d")


@pytest.mark.parametrize(("compression", "sizes"), [(None, [4, 4, 4]), ("gzip", [12])])
def test_a_large_capture_is_read_in_pieces_and_a_compressed_one_is_decoded_once(
    compression: str | None, sizes: list[int], tmp_path: Path
) -> None:
    path = handmade.write(tmp_path / "epoch-0000.h5")
    with h5py.File(path, "r+") as file:
        values = file[VALUES][()]
        del file[VALUES]
        file.create_dataset(VALUES, data=values, compression=compression)
    part = SealedFile(path).part(SeriesAddress(SeriesKey("acts", "fc1", "output", "train")))
    pieces = list(part.pieces(1, 3, 4))
    assert [len(piece) for piece in pieces] == sizes
    assert np.concatenate(pieces).tolist() == list(range(6, 18))
    assert list(part.pieces(2, 2, 4)) == []
