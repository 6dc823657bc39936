"""Compress the chunks of a dataset, and decode them, with the Python packages of the codecs; no filter of the HDF5 library runs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import h5py
import numpy as np

from probes.errors import FileRefused, UsageError
from probes.optional_package import import_optional

GZIP, SHUFFLE, ZSTD, BLOSC2 = 1, 2, 32015, 32026  # registered numbers of HDF5 filters
LARGEST_CHUNK = 256 * 1024
GZIP_LEVEL = 4
ZSTD_LEVEL = 3

Encode = Callable[[bytes, int], bytes]


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The chunk of a dataset: at most 256 KiB, and one run of the elements in their order.

    Args:
        shape: sizes of the dataset, none of them 0.
        itemsize: bytes of an element.
    """
    room = max(LARGEST_CHUNK // itemsize, 1)
    for axis in range(len(shape)):
        inner = prod(shape[axis + 1 :])
        if inner <= room:
            return (*[1] * axis, min(room // inner, shape[axis]), *shape[axis + 1 :])
    raise AssertionError("BUG: the last axis has an inner size of 1")


def chunks(shape: tuple[int, ...], chunk: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
    """The corner and the number of elements of each chunk, in the order of the elements."""
    axis = next((index for index, size in enumerate(chunk) if size > 1), len(chunk) - 1)
    inner = prod(shape[axis + 1 :])
    for outer in np.ndindex(*shape[:axis]):
        for start in range(0, shape[axis], chunk[axis]):
            corner = (*outer, start, *[0] * (len(shape) - axis - 1))
            yield corner, min(chunk[axis], shape[axis] - start) * inner


@dataclass(frozen=True)
class Compression:
    """A compression of the values of every series.

    Attributes:
        filters: number and settings of each HDF5 filter that a chunk is declared to have passed.
        encode: turns a chunk and the size of its elements into what is stored.
    """

    filters: tuple[tuple[int, tuple[int, ...]], ...]
    encode: Encode

    def properties(self, shape: tuple[int, ...], itemsize: int) -> Any:
        """Creation properties of a dataset in chunks, or None if it has no bytes to compress."""
        if not prod(shape):
            return None
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(chunk_shape(shape, itemsize))
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        properties.set_obj_track_times(False)
        for code, values in self.filters:
            settings = (itemsize,) if code == SHUFFLE else values
            # optional, because this build of the library may not have the filter
            properties.set_filter(code, h5py.h5z.FLAG_OPTIONAL, settings)
        return properties


def compression(name: str) -> Compression:
    """The compression with the name in a spec, other than `none`.

    Raises:
        UsageError: no such compression.
        MissingExtra: its package is not installed.
    """
    if name not in _MAKERS:
        raise UsageError(f'"{name}" is not a known compression; known: {", ".join(("none", *_MAKERS))}')
    return _MAKERS[name]()


def _shuffled(data: bytes, itemsize: int) -> bytes:
    return np.frombuffer(data, np.uint8).reshape(-1, itemsize).T.tobytes()


def _gzip_compression() -> Compression:
    return Compression(((SHUFFLE, ()), (GZIP, (GZIP_LEVEL,))), lambda data, itemsize: zlib.compress(_shuffled(data, itemsize), GZIP_LEVEL))


def _zstd_compression() -> Compression:
    compressor = import_optional("zstandard", "zstd", "compression `zstd`").ZstdCompressor(level=ZSTD_LEVEL)
    return Compression(((SHUFFLE, ()), (ZSTD, (ZSTD_LEVEL,))), lambda data, itemsize: compressor.compress(_shuffled(data, itemsize)))


def _blosc2_compression() -> Compression:
    blosc2 = import_optional("blosc2", "blosc2", "compression `blosc2`")

    def encode(data: bytes, itemsize: int) -> bytes:
        return bytes(blosc2.compress2(data, typesize=itemsize, nthreads=1))

    return Compression(((BLOSC2, (2, 0, 0, 0)),), encode)


_MAKERS: dict[str, Callable[[], Compression]] = {
    "gzip": _gzip_compression,
    "zstd": _zstd_compression,
    "blosc2": _blosc2_compression,
}


class ChunkFilter(NamedTuple):
    """One step of a dataset's pipeline.

    Attributes:
        code: registered number of the filter.
        values: its settings.
    """

    code: int
    values: tuple[int, ...]


def decode(data: bytes, filters: Sequence[ChunkFilter], size: int) -> bytes:
    """Undo a pipeline of filters.

    Args:
        data: a chunk as stored.
        filters: in the order in which they were applied.
        size: bytes of the chunk before any filter; no step may give more.

    Raises:
        FileRefused: `damaged`, or `shape-bomb` if a chunk would expand beyond `size`.
        MissingExtra: the codec's package is not installed.
    """
    for step in reversed(filters):
        data = FILTERS[step.code](data, step.values, size)
    return data


def _decode_gzip(data: bytes, values: tuple[int, ...], size: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        out = stream.decompress(data, size + 1)  # one byte more, so that the end of a chunk of exactly this size is found
    except zlib.error as error:
        raise FileRefused("damaged", f"a gzip chunk cannot be decoded: {error}") from error
    if len(out) > size:
        raise FileRefused("shape-bomb", f"a gzip chunk expands beyond its {size} bytes")
    if not stream.eof:
        raise FileRefused("damaged", "a gzip chunk has no end")
    return out


def _decode_shuffle(data: bytes, values: tuple[int, ...], size: int) -> bytes:
    width = values[0] if values else 1
    if width < 1:
        raise FileRefused("damaged", "a chunk was shuffled with elements of 0 bytes")
    whole = len(data) // width * width
    planes = np.frombuffer(data[:whole], np.uint8).reshape(width, -1)
    out = np.empty((planes.shape[1], width), np.uint8)
    for byte in range(width):  # a third of the time of a transposed copy
        out[:, byte] = planes[byte]
    return out.tobytes() + data[whole:]


def _decode_zstd(data: bytes, values: tuple[int, ...], size: int) -> bytes:
    zstandard = import_optional("zstandard", "zstd", "data that is compressed with `zstd`")
    try:
        if zstandard.get_frame_parameters(data).content_size > size:
            raise FileRefused("shape-bomb", f"a zstd chunk expands beyond its {size} bytes")
        return bytes(zstandard.ZstdDecompressor().decompress(data, max_output_size=size))
    except zstandard.ZstdError as error:
        raise FileRefused("damaged", f"a zstd chunk cannot be decoded: {error}") from error


def _decode_blosc2(data: bytes, values: tuple[int, ...], size: int) -> bytes:
    blosc2 = import_optional("blosc2", "blosc2", "data that is compressed with `blosc2`")
    try:
        if blosc2.get_cbuffer_sizes(data)[0] > size:
            raise FileRefused("shape-bomb", f"a blosc2 chunk expands beyond its {size} bytes")
        return bytes(blosc2.decompress2(data))
    except (RuntimeError, ValueError, TypeError) as error:
        if isinstance(error, FileRefused):
            raise
        raise FileRefused("damaged", f"a blosc2 chunk cannot be decoded: {error}") from error


FILTERS: dict[int, Callable[[bytes, tuple[int, ...], int], bytes]] = {
    GZIP: _decode_gzip,
    SHUFFLE: _decode_shuffle,
    ZSTD: _decode_zstd,
    BLOSC2: _decode_blosc2,
}
