"""The storage of a dataset: type, filters and offset in the file, checked before any byte of it is read."""

from __future__ import annotations

import os
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np
from numpy.typing import NDArray

from probes.capture_file.codecs import FILTERS, ChunkFilter, decode
from probes.errors import FileRefused, StorageError
from probes.plain_file import CONSTANT_RATIO, UNPACK_ALL, most_unpacked

LARGEST = 1 << 62
LARGEST_CHUNK = 1 << 20  # four times what the format allows
LARGEST_COMPACT = 1 << 16
ENTRY = 8  # an address: what the index of chunks has at least for each
COLUMN_FREE = 16 << 20
COLUMN_RATIO = 16  # clocks, shapes and digests are in one piece in every capture file; other tools may compress them
SLACK = 1 << 20
BFLOAT16 = (15, 7, 8, 0, 7)  # sign position, exponent position and size, mantissa position and size
FLOAT16 = (15, 10, 5, 0, 10)  # of IEEE; two types of the HDF5 library have them, see `hdf5_write`

BYTE = np.dtype(np.uint8)
SMALL = 1 << 12  # bytes; so much and less is taken from a window of the file that was read at once
WINDOW = 1 << 15

Elements = NDArray[Any]


class StoredBytes:
    """Counts each object of a file once, by its address in the file.

    A forger can let thousands of objects point to the same bytes, so that a small file takes hours to read. The objects of a sealed file
    store together at most as many bytes as the file has.

    Args:
        path: the file, for messages.
        size: how many bytes it has.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        self._names: dict[int, int] = {}
        self._counted: set[int] = set()
        self._stored = self._unpacked = 0

    def name(self, address: int, name: str) -> None:
        """Note under which name an object was reached.

        Raises:
            FileRefused: it was reached under another one before: 50,000 names of one series are 50,000 series to read.
        """
        if self._names.setdefault(address, hash(name)) != hash(name):
            raise FileRefused("extra-object", f'"{name}" of "{self._path}" has several names')

    def store(self, address: int, name: str, count: int) -> None:
        """Count the bytes that an object stores.

        Raises:
            FileRefused: all objects together store more than the file has.
        """
        if address not in self._counted:
            self._counted.add(address)
            self._stored += count
            if self._stored > self._size + SLACK:
                raise FileRefused("shape-bomb", f'"{name}" of "{self._path}" shares its bytes with other objects of the file')

    def unpack(self, address: int, name: str, stored: int, count: int) -> None:
        """Count the bytes that a dataset in chunks unpacks to; `store` follows.

        Raises:
            FileRefused: they are too many for the file, or for a column next to the values.
        """
        if address in self._counted:
            return
        self._unpacked += count
        if not name.endswith("/values") and count > COLUMN_FREE + COLUMN_RATIO * stored:
            raise FileRefused("shape-bomb", f'"{name}" of "{self._path}" unpacks from {stored} to {count} bytes')
        if self._unpacked > most_unpacked(self._size, CONSTANT_RATIO):
            message = f'"{self._path}" has {self._size} bytes and unpacks to {self._unpacked} and more'
            raise FileRefused("shape-bomb", f"{message}; {UNPACK_ALL}=1 in the environment reads it, if you trust who made it")


class FileContent:
    """Reads an open file by place; a memory map would end the process if the file is cut off meanwhile.

    Args:
        path: the file, for messages.
        handle: the file as the HDF5 library has it open: both read the same file, even if another is at its path by now.

    Attributes:
        size: how many bytes it had when it was opened.
    """

    def __init__(self, path: Path, handle: h5py.h5f.FileID) -> None:
        self._path, self._handle = path, handle
        self._window = 0, np.empty(0, BYTE)
        self.size = os.fstat(self.descriptor).st_size

    @property
    def descriptor(self) -> int:
        """The descriptor, which the HDF5 library closes."""
        return int(self._handle.get_vfd_handle())

    def array(self, dtype: np.dtype[Any], count: int, offset: int) -> Elements:
        """(count,) the elements at a place; fresh memory.

        Raises:
            FileRefused: the file ends before.
            StorageError: the disk fails.
        """
        bytes_asked = count * dtype.itemsize
        if bytes_asked <= SMALL:
            begin, window = self._window
            if not begin <= offset <= begin + len(window) - bytes_asked:
                window = np.empty(min(WINDOW, max(self.size - offset, bytes_asked)), BYTE)
                self._window = begin, window = offset, window[: self._fill(window, offset, bytes_asked)]
            return window[offset - begin : offset - begin + bytes_asked].copy().view(dtype)
        out = np.empty(count, dtype)
        self._fill(out.view(BYTE), offset, bytes_asked)
        return out

    def _fill(self, out: Elements, offset: int, least: int) -> int:
        """Fill the array with the bytes at a place; returns how many there are, if they are not fewer than `least`."""
        rest, end = out.data, offset
        try:
            while rest and (read := os.preadv(self.descriptor, [rest], end)):
                rest, end = rest[read:], end + read
        except OSError as error:
            raise StorageError(f'"{self._path}" cannot be read: {error.strerror or error}') from error
        if end - offset < least:
            raise FileRefused("truncated", f'"{self._path}" has {end} bytes, and had {self.size} when it was opened')
        return end - offset


class StoredArray(Protocol):
    """A dataset that passed the checks.

    Attributes:
        shape: its sizes.
        dtype: little-endian numpy dtype of the exact bits.
        extent: first byte in the file, and the byte after the last, where it is stored in one piece; else nothing.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    extent: range

    def elements(self, start: int, stop: int) -> Elements:
        """Elements in C order, flat; fresh memory."""

    def read(self) -> Elements:
        """All elements, in the dataset's shape; fresh memory."""


class ContiguousArray:
    """A dataset in one piece."""

    def __init__(self, content: FileContent, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> None:
        self.shape = shape
        self.dtype = dtype
        self.extent = range(offset, offset + prod(shape) * dtype.itemsize)
        self._content = content

    def elements(self, start: int, stop: int) -> Elements:
        """Elements in C order, flat; fresh memory."""
        return self._content.array(self.dtype, stop - start, self.extent.start + start * self.dtype.itemsize)

    def read(self) -> Elements:
        """All elements, in the dataset's shape; fresh memory."""
        return self.elements(0, prod(self.shape)).reshape(self.shape)


class CompactArray:
    """A small dataset that is stored with its description."""

    def __init__(self, values: Elements) -> None:
        self.shape, self.dtype, self.extent = values.shape, values.dtype, range(0)
        self._values = values

    def elements(self, start: int, stop: int) -> Elements:
        """Elements in C order, flat; fresh memory."""
        return self._values.reshape(-1)[start:stop].copy()

    def read(self) -> Elements:
        """All elements, in the dataset's shape; fresh memory."""
        return self._values.copy()


class ChunkedArray:
    """A dataset in chunks; the HDF5 library locates them, and this class decodes them."""

    def __init__(self, storage: DatasetStorage, filters: tuple[ChunkFilter, ...]) -> None:
        self.shape = storage.shape
        self.dtype = storage.dtype
        self.extent = range(0)
        self._storage = storage
        self._filters = filters
        self._chunk = storage.chunk
        self._latest: tuple[bytes, int] = (b"", 0)
        self._latest_decoded: Elements = np.empty(0, self.dtype)

    def elements(self, start: int, stop: int) -> Elements:
        """Elements in C order, flat; fresh memory."""
        row = prod(self.shape[1:])
        if stop <= start:
            return np.empty(0, self.dtype)
        first = start // row
        return self._rows(first, -(-stop // row)).reshape(-1)[start - first * row : stop - first * row]

    def read(self) -> Elements:
        """All elements, in the dataset's shape; fresh memory."""
        return self._rows(0, self.shape[0])

    def _rows(self, first: int, last: int) -> Elements:
        out = np.empty((last - first, *self.shape[1:]), self.dtype)
        high = self._chunk[0]
        corners = [range(first // high * high, last, high)]
        corners += [range(0, size, step) for size, step in zip(self.shape[1:], self._chunk[1:], strict=True)]
        for corner in product(*corners):
            lower, upper = max(corner[0], first), min(corner[0] + high, last)
            within = tuple(slice(at, at + step) for at, step in zip(corner[1:], self._chunk[1:], strict=True))
            target = out[(slice(lower - first, upper - first), *within)]
            edges = tuple(slice(0, size) for size in target.shape[1:])
            target[...] = self._decoded(corner)[(slice(lower - corner[0], upper - corner[0]), *edges)]
        return out

    def _decoded(self, corner: tuple[int, ...]) -> Elements:
        raw, skipped = self._storage.raw_chunk(tuple(at // step for at, step in zip(corner, self._chunk, strict=True)))
        if (raw, skipped) == self._latest:  # the chunks of a constant value, of which a small file can have thousands
            return self._latest_decoded
        size = prod(self._chunk) * self.dtype.itemsize
        data = decode(raw, [f for index, f in enumerate(self._filters) if not skipped >> index & 1], size)
        if len(data) != size:
            raise self._storage.refuse("damaged", f"has a chunk of {len(data)} bytes instead of {size}")
        self._latest, self._latest_decoded = (raw, skipped), np.frombuffer(data, self.dtype).reshape(self._chunk)
        return self._latest_decoded


class DatasetStorage:
    """The checks of one dataset.

    Attributes:
        shape: its declared sizes.
        dtype: little-endian numpy dtype of the exact bits.
        chunk: sizes of a chunk; empty if the dataset is not chunked.
    """

    def __init__(self, path: Path, name: str, content: FileContent, dataset: Any, counted: StoredBytes, address: int) -> None:
        self._path, self._name, self._content, self._id = path, name, content, dataset
        self._counted, self._address = counted, address
        self._properties = dataset.get_create_plist()
        self.dtype = self._dtype(dataset.get_type())
        self.shape: tuple[int, ...] = self._shape(dataset.get_space())
        self.chunk: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that the shape declares."""
        return prod(self.shape) * self.dtype.itemsize

    def array(self) -> StoredArray:
        """The dataset, ready to be read.

        Raises:
            FileRefused: it keeps its bytes elsewhere, or declares what it does not store.
        """
        layout = self._properties.get_layout()
        if layout == h5py.h5d.VIRTUAL:
            raise self.refuse("virtual-dataset", "is a virtual dataset")
        if self._properties.get_external_count():
            raise self.refuse("external-storage", "has external storage")
        if layout == h5py.h5d.CHUNKED:
            return self._chunked()
        if layout == h5py.h5d.COMPACT:
            return CompactArray(self._compact())
        return ContiguousArray(self._content, self.dtype, self.shape, self._offset())

    def raw_chunk(self, place: tuple[int, ...]) -> tuple[bytes, int]:
        """The stored bytes of a chunk by its place in the grid of chunks, and the mask of filters it was stored without."""
        offset, size, skipped = self._chunks[place].item()
        if not offset or not size:
            raise self.refuse("shape-bomb", f"declares a chunk at {place} that it does not store")
        if size > 2 * LARGEST_CHUNK or offset + size > self._content.size:
            raise self.refuse("truncated", f"has a chunk at {place} that reaches beyond the end of the file")
        return self._content.array(BYTE, size, offset).tobytes(), skipped

    @cached_property
    def _chunks(self) -> NDArray[Any]:
        """The offset of each chunk, by its place in the grid; asking the HDF5 library for one chunk goes through all of them."""
        grid = tuple(-(-length // step) for length, step in zip(self.shape, self.chunk, strict=True))
        found = np.zeros(grid, [("offset", "<i8"), ("size", "<i8"), ("skipped", "<u4")])

        def note(chunk: Any) -> None:
            place = tuple(at // step for at, step in zip(chunk.chunk_offset, self.chunk, strict=True))
            if all(at < length for at, length in zip(place, grid, strict=True)):
                found[place] = (chunk.byte_offset or 0, chunk.size, chunk.filter_mask)

        if hasattr(self._id, "chunk_iter"):
            self._id.chunk_iter(note)
        else:  # a build of h5py with an older library, in which this takes as long as asking for each
            for index in range(self._id.get_num_chunks()):
                note(self._id.get_chunk_info(index))
        return found

    def refuse(self, code: str, what: str) -> FileRefused:
        """The refusal of this dataset."""
        return FileRefused(code, f'"{self._name}" of "{self._path}" {what}')

    def _dtype(self, kind: Any) -> np.dtype[Any]:
        if kind.committed():
            raise self.refuse("unsafe-type", "has a variable-length or reference type")
        family, size = kind.get_class(), kind.get_size()
        if family == h5py.h5t.STRING and not kind.is_variable_str():
            return np.dtype(f"S{size}")
        little = size == 1 or (family in (h5py.h5t.INTEGER, h5py.h5t.FLOAT) and kind.get_order() == h5py.h5t.ORDER_LE)
        if little and family == h5py.h5t.INTEGER and size in (1, 2, 4, 8) and kind.get_precision() == 8 * size:
            return np.dtype(f"<{'u' if kind.get_sign() == h5py.h5t.SGN_NONE else 'i'}{size}")
        if little and family == h5py.h5t.FLOAT:
            if any(kind == known for known in (h5py.h5t.IEEE_F32LE, h5py.h5t.IEEE_F64LE)):
                return np.dtype(f"<f{size}")
            if size == 2 and kind.get_fields() == FLOAT16 and kind.get_ebias() == 15:
                return np.dtype("<f2")
            if size == 2 and kind.get_fields() == BFLOAT16 and kind.get_ebias() == 127:
                return np.dtype("<u2")
        raise self.refuse("unsafe-type", "has a type that capture files do not use")

    def _shape(self, space: Any) -> tuple[int, ...]:
        if space.get_simple_extent_type() == h5py.h5s.NULL:
            raise self.refuse("unsafe-type", "has no shape")
        shape: tuple[int, ...] = space.shape
        if prod(size for size in shape if size) * self.dtype.itemsize > LARGEST:
            raise self.refuse("shape-bomb", f"declares the shape {shape}")
        return shape

    def _offset(self) -> int:
        if not self.nbytes:
            return 0
        offset = self._id.get_offset()
        if offset is None or self._id.get_storage_size() < self.nbytes:
            raise self.refuse("shape-bomb", f"declares {self.nbytes} bytes and stores {self._id.get_storage_size()}")
        if offset + self.nbytes > self._content.size:
            raise self.refuse("truncated", "reaches beyond the end of the file")
        self._counted.store(self._address, self._name, self.nbytes)
        return int(offset)

    def _compact(self) -> Elements:
        if self.nbytes > LARGEST_COMPACT or self._id.get_storage_size() < self.nbytes:
            raise self.refuse("shape-bomb", f"declares {self.nbytes} bytes and stores {self._id.get_storage_size()}")
        self._counted.store(self._address, self._name, self.nbytes)
        out = np.empty(self.shape, self.dtype)
        kind = self._id.get_type()
        if out.size:
            self._id.read(h5py.h5s.ALL, h5py.h5s.ALL, out, kind)  # the stored type itself, so no bit is converted
        return out

    def _chunked(self) -> ChunkedArray:
        filters = tuple(self._filter(index) for index in range(self._properties.get_nfilters()))
        self.chunk = self._properties.get_chunk()
        size = prod(self.chunk) * self.dtype.itemsize
        if size > LARGEST_CHUNK:
            raise self.refuse("shape-bomb", f"has chunks of {size} bytes; {LARGEST_CHUNK} are allowed")
        declared = prod(-(-length // step) for length, step in zip(self.shape, self.chunk, strict=True))
        stored = self._id.get_num_chunks() if self.nbytes else declared
        if stored != declared or self._id.get_storage_size() > self._content.size:
            raise self.refuse("shape-bomb", f"declares {declared} chunks and stores {stored}")
        packed = self._id.get_storage_size()
        self._counted.unpack(self._address, self._name, packed, self.nbytes)
        self._counted.store(self._address, self._name, packed + ENTRY * max(stored - 1, 0))
        return ChunkedArray(self, filters)

    def _filter(self, index: int) -> ChunkFilter:
        code, _, values, _ = self._properties.get_filter(index)
        if code not in FILTERS:
            raise self.refuse("unknown-filter", f"is stored through the unknown filter {code}; known: {', '.join(map(str, FILTERS))}")
        return ChunkFilter(code, tuple(values))
