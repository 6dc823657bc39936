import sys
import zlib
from contextlib import suppress

import numpy as np
import pytest

from probes.capture_file.codecs import BLOSC2, GZIP, SHUFFLE, ZSTD, ChunkFilter, decode
from probes.errors import FileRefused, MissingExtra

DATA = np.arange(1000, dtype="<f4").tobytes()


def encoded(code: int, data: bytes) -> bytes:
    if code == GZIP:
        return zlib.compress(data)
    if code == ZSTD:
        return pytest.importorskip("zstandard", reason="zstandard is not installed").compress(data)
    return bytes(pytest.importorskip("blosc2", reason="blosc2 is not installed").compress2(data))


@pytest.mark.parametrize("code", [GZIP, ZSTD, BLOSC2])
def test_a_chunk_is_decoded_to_what_it_was(code: int) -> None:
    assert decode(encoded(code, DATA), [ChunkFilter(code, ())], len(DATA)) == DATA


@pytest.mark.parametrize("code", [GZIP, ZSTD, BLOSC2])
def test_a_chunk_that_expands_beyond_its_size_is_refused_before_it_does(code: int) -> None:
    with pytest.raises(FileRefused) as refused:
        decode(encoded(code, bytes(1 << 22)), [ChunkFilter(code, ())], 1 << 10)
    assert refused.value.code == "shape-bomb"


@pytest.mark.parametrize("code", [GZIP, ZSTD, BLOSC2])
@pytest.mark.parametrize("data", [b"", b"no codec wrote this", b"\x28\xb5\x2f\xfd"])
def test_bytes_that_no_codec_wrote_are_refused(code: int, data: bytes) -> None:
    with pytest.raises(FileRefused) as refused:
        decode(data, [ChunkFilter(code, ())], 1 << 10)
    assert refused.value.code == "damaged"


@pytest.mark.parametrize("code", [GZIP, ZSTD, BLOSC2])
def test_a_flipped_bit_in_a_chunk_raises_nothing_but_refusals(code: int) -> None:
    sound = encoded(code, DATA)
    for position in range(0, len(sound), max(len(sound) // 97, 1)):
        damaged = bytearray(sound)
        damaged[position] ^= 0x10
        with suppress(FileRefused):
            decode(bytes(damaged), [ChunkFilter(code, ())], len(DATA))


def test_filters_are_undone_from_the_last_to_the_first() -> None:
    shuffled = np.frombuffer(DATA, np.uint8).reshape(-1, 4).T.tobytes()
    assert decode(zlib.compress(shuffled), [ChunkFilter(SHUFFLE, (4,)), ChunkFilter(GZIP, (4,))], len(DATA)) == DATA


@pytest.mark.parametrize(("code", "package"), [(ZSTD, "zstandard"), (BLOSC2, "blosc2")])
def test_a_missing_codec_is_named_with_what_installs_it(code: int, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(code, DATA)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match="torch-probes"):
        decode(data, [ChunkFilter(code, ())], len(DATA))


def test_elements_of_no_bytes_are_refused() -> None:
    with pytest.raises(FileRefused, match="shuffled with elements of 0 bytes"):
        decode(b"1234", [ChunkFilter(SHUFFLE, (0,))], 4)
