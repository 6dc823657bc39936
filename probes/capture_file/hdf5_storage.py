"""How a dataset is stored: type, filters and offset in the file, checked before any byte of it is read."""

from __future__ import annotations

import mmap
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np
from numpy.typing import NDArray

from probes.capture_file.codecs import FILTERS, ChunkFilter, decode
from probes.errors import FileRefused

LARGEST = 1 << 62
LARGEST_CHUNK = 1 << 20  # four times what the format allows
LARGEST_COMPACT = 1 << 16
BFLOAT16 = (15, 7, 8, 0, 7)  # sign position, exponent position and size, mantissa position and size
FLOAT16 = (15, 10, 5, 0, 10)  # of IEEE; two types of the HDF5 library have them, see `hdf5_write`

Elements = NDArray[Any]


class StoredArray(Protocol):
    """A dataset that passed the checks.

    Attributes:
        shape: its sizes.
        dtype: little-endian numpy dtype of the exact bits.
        extent: first byte in the file, and the byte behind the last, where it is stored in one piece; else nothing.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    extent: range

    def elements(self, start: int, stop: int) -> Elements:
        """Elements in C order, flat; may be a read-only view into the file."""

    def read(self) -> Elements:
        """All of it, in its shape; may be a read-only view into the file."""


class ContiguousArray:
    """A dataset in one piece, read through the map of the file."""

    def __init__(self, contents: mmap.mmap | bytes, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> None:
        self.shape = shape
        self.dtype = dtype
        self.extent = range(offset, offset + prod(shape) * dtype.itemsize if isinstance(contents, mmap.mmap) else offset)
        self._flat: Elements = np.frombuffer(contents, dtype, prod(shape), offset) if prod(shape) else np.empty(0, dtype)

    def elements(self, start: int, stop: int) -> Elements:
        """Elements in C order, flat; a read-only view into the file."""
        return self._flat[start:stop]

    def read(self) -> Elements:
        """All of it, in its shape; a read-only view into the file."""
        return self._flat.reshape(self.shape)


class ChunkedArray:
    """A dataset in chunks, each found through the HDF5 library and decoded here."""

    def __init__(self, storage: DatasetStorage, filters: tuple[ChunkFilter, ...]) -> None:
        self.shape = storage.shape
        self.dtype = storage.dtype
        self.extent = range(0)
        self._storage = storage
        self._filters = filters
        self._chunk = storage.chunk

    def elements(self, start: int, stop: int) -> Elements:
        """Elements in C order, flat; fresh memory."""
        row = prod(self.shape[1:])
        if stop <= start:
            return np.empty(0, self.dtype)
        first = start // row
        return self._rows(first, -(-stop // row)).reshape(-1)[start - first * row : stop - first * row]

    def read(self) -> Elements:
        """All of it, in its shape; fresh memory."""
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
        raw, skipped = self._storage.raw_chunk(corner)
        size = prod(self._chunk) * self.dtype.itemsize
        data = decode(raw, [f for index, f in enumerate(self._filters) if not skipped >> index & 1], size)
        if len(data) != size:
            raise self._storage.refuse("damaged", f"has a chunk of {len(data)} bytes instead of {size}")
        return np.frombuffer(data, self.dtype).reshape(self._chunk)


class DatasetStorage:
    """The checks of one dataset.

    Attributes:
        shape: its declared sizes.
        dtype: little-endian numpy dtype of the exact bits.
        chunk: sizes of a chunk; empty where the dataset is not chunked.
    """

    def __init__(self, path: Path, name: str, contents: mmap.mmap, dataset: Any) -> None:
        self._path, self._name, self._bytes, self._id = path, name, contents, dataset
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
            return ContiguousArray(self._compact(), self.dtype, self.shape, 0)
        return ContiguousArray(self._bytes, self.dtype, self.shape, self._offset())

    def raw_chunk(self, corner: tuple[int, ...]) -> tuple[bytes, int]:
        """The stored bytes of the chunk that begins at `corner`, and the mask of filters it was stored without."""
        found = self._id.get_chunk_info_by_coord(corner)
        if found.byte_offset is None or not found.size:
            raise self.refuse("shape-bomb", f"declares a chunk at {corner} that it does not store")
        if found.size > 2 * LARGEST_CHUNK or found.byte_offset + found.size > len(self._bytes):
            raise self.refuse("truncated", f"has a chunk at {corner} that reaches beyond the end of the file")
        return self._bytes[found.byte_offset : found.byte_offset + found.size], found.filter_mask

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
        if offset + self.nbytes > len(self._bytes):
            raise self.refuse("truncated", "reaches beyond the end of the file")
        return int(offset)

    def _compact(self) -> bytes:
        if self.nbytes > LARGEST_COMPACT or self._id.get_storage_size() < self.nbytes:
            raise self.refuse("shape-bomb", f"declares {self.nbytes} bytes and stores {self._id.get_storage_size()}")
        out = np.empty(self.shape, self.dtype)
        kind = self._id.get_type()
        if out.size:
            self._id.read(h5py.h5s.ALL, h5py.h5s.ALL, out, kind)  # the stored type itself, so no bit is converted
        return out.tobytes()

    def _chunked(self) -> ChunkedArray:
        filters = tuple(self._filter(index) for index in range(self._properties.get_nfilters()))
        self.chunk = self._properties.get_chunk()
        size = prod(self.chunk) * self.dtype.itemsize
        if size > LARGEST_CHUNK:
            raise self.refuse("shape-bomb", f"has chunks of {size} bytes; {LARGEST_CHUNK} are allowed")
        declared = prod(-(-length // step) for length, step in zip(self.shape, self.chunk, strict=True))
        stored = self._id.get_num_chunks() if self.nbytes else declared
        if stored != declared or self._id.get_storage_size() > len(self._bytes):
            raise self.refuse("shape-bomb", f"declares {declared} chunks and stores {stored}")
        return ChunkedArray(self, filters)

    def _filter(self, index: int) -> ChunkFilter:
        code, _, values, _ = self._properties.get_filter(index)
        if code not in FILTERS:
            raise self.refuse("unknown-filter", f"is stored through the unknown filter {code}; known: {', '.join(map(str, FILTERS))}")
        return ChunkFilter(code, tuple(values))
