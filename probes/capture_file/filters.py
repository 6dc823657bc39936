"""Decoding chunks of a dataset with the codecs' own packages, never through plug-ins of the HDF5 library."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from probes.errors import FileRefused
from probes.optional_package import import_optional

GZIP, SHUFFLE, ZSTD, BLOSC2 = 1, 2, 32015, 32026  # registered numbers of HDF5 filters


class Filter(NamedTuple):
    """One step of a dataset's pipeline.

    Attributes:
        code: registered number of the filter.
        values: its settings.
    """

    code: int
    values: tuple[int, ...]


def decode(data: bytes, filters: Sequence[Filter], size: int) -> bytes:
    """Undo a pipeline of filters.

    Args:
        data: a chunk as stored.
        filters: in the order in which they were applied.
        size: bytes of the chunk before any filter; no step may give more.

    Raises:
        FileRefused: `damaged`, or `shape-bomb` where a chunk would expand beyond `size`.
        MissingExtra: the codec's package is not installed.
    """
    for step in reversed(filters):
        data = FILTERS[step.code](data, step.values, size)
    return data


def _gunzip(data: bytes, values: tuple[int, ...], size: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        out = stream.decompress(data, size + 1)  # one more, so that the end of a chunk of just this size is seen
    except zlib.error as error:
        raise FileRefused("damaged", f"a gzip chunk cannot be decoded: {error}") from error
    if len(out) > size:
        raise FileRefused("shape-bomb", f"a gzip chunk expands beyond its {size} bytes")
    if not stream.eof:
        raise FileRefused("damaged", "a gzip chunk has no end")
    return out


def _unshuffle(data: bytes, values: tuple[int, ...], size: int) -> bytes:
    width = values[0] if values else 1
    if width < 1:
        raise FileRefused("damaged", "a chunk was shuffled by elements of no bytes")
    whole = len(data) // width * width
    return np.frombuffer(data[:whole], np.uint8).reshape(width, -1).T.tobytes() + data[whole:]


def _zstd(data: bytes, values: tuple[int, ...], size: int) -> bytes:
    zstandard = import_optional("zstandard", "zstd", "data that is compressed with `zstd`")
    try:
        if zstandard.get_frame_parameters(data).content_size > size:
            raise FileRefused("shape-bomb", f"a zstd chunk expands beyond its {size} bytes")
        return bytes(zstandard.ZstdDecompressor().decompress(data, max_output_size=size))
    except zstandard.ZstdError as error:
        raise FileRefused("damaged", f"a zstd chunk cannot be decoded: {error}") from error


def _blosc2(data: bytes, values: tuple[int, ...], size: int) -> bytes:
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
    GZIP: _gunzip,
    SHUFFLE: _unshuffle,
    ZSTD: _zstd,
    BLOSC2: _blosc2,
}
