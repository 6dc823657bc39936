"""Groups, datasets, attributes and dimension scales, created through h5py's low-level API, which is several times as fast."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import h5py
import numpy as np

from probes.signature import DTYPES

Value: TypeAlias = str | bool | int | float | Sequence[str] | Sequence[float]

NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."
LARGEST_ATTRIBUTE = 60_000  # the limit of an object header of this format is 64 KiB


def _half() -> Any:
    """IEEE float16 with a property that changes no number: its padding bits, of which it has none, are ones.

    netCDF-C 4.10 ends the process when it meets the type that the HDF5 library takes for the machine's own float16. This one it reads as
    float32; for h5py it is float16 like any other.
    """
    kind = h5py.h5t.IEEE_F16LE.copy()
    kind.set_inpad(h5py.h5t.PAD_ONE)
    return kind


_SCALAR = h5py.h5s.create(h5py.h5s.SCALAR)
_TYPES = {
    "u1": h5py.h5t.STD_U8LE,
    "u2": h5py.h5t.STD_U16LE,
    "u4": h5py.h5t.STD_U32LE,
    "u8": h5py.h5t.STD_U64LE,
    "i1": h5py.h5t.STD_I8LE,
    "i2": h5py.h5t.STD_I16LE,
    "i4": h5py.h5t.STD_I32LE,
    "i8": h5py.h5t.STD_I64LE,
    "f2": _half(),
    "f4": h5py.h5t.IEEE_F32LE,
    "f8": h5py.h5t.IEEE_F64LE,
}


def number_type(name: str) -> Any:
    """The HDF5 type of a numpy dtype, given by its name without byte order; little-endian."""
    return _TYPES[name]


@cache
def value_type(dtype: str) -> Any:
    """The HDF5 type that holds the exact bits of a torch dtype; one lane of a complex number."""
    if dtype != "bfloat16":
        return _TYPES[DTYPES[dtype].numpy]
    kind = h5py.h5t.IEEE_F16LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


@cache
def text_type(size: int) -> Any:
    """Fixed-length UTF-8, padded with zeros."""
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(max(size, 1))
    kind.set_cset(h5py.h5t.CSET_UTF8)
    kind.set_strpad(h5py.h5t.STR_NULLPAD)
    return kind


@cache
def _immediate() -> Any:
    """Creation properties of a dataset with a known place in the file, whose bytes are written by this package."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    properties.set_obj_track_times(False)
    return properties


@cache
def _never() -> Any:
    """Creation properties of a dataset that is never written, so that it needs no space in the file; it reads as zeros."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)
    properties.set_obj_track_times(False)
    return properties


@cache
def _untimed_dataset() -> Any:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    return properties


@cache
def _untimed() -> Any:
    properties = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    properties.set_obj_track_times(False)
    return properties


def group(parent: Any, name: str) -> Any:
    """A new group."""
    return h5py.h5g.create(parent, name.encode(), gcpl=_untimed())


def dataset(parent: Any, name: str, kind: Any, shape: tuple[int, ...], properties: Any = None) -> Any:
    """A new dataset, contiguous and allocated at once unless other creation properties are given."""
    return h5py.h5d.create(parent, name.encode(), kind, h5py.h5s.create_simple(shape), dcpl=properties or _immediate())


def text(parent: Any, name: str, content: bytes) -> Any:
    """A new scalar text dataset; its bytes are written by the caller."""
    return h5py.h5d.create(parent, name.encode(), text_type(len(content)), _SCALAR, dcpl=_immediate())


def coordinate(parent: Any, name: str, kind: Any, size: int) -> Any:
    """A new dimension scale that has values."""
    made = dataset(parent, name, kind, (size,))
    h5py.h5ds.set_scale(made, name.encode())
    return made


def text_coordinate(parent: Any, name: str, labels: Sequence[str]) -> Any:
    """A new dimension scale of texts, the only ones of variable length: all engines of xarray read these as texts."""
    texts = np.array(labels, h5py.string_dtype())
    made = dataset(parent, name, h5py.h5t.py_create(texts.dtype, logical=True), (len(labels),), _untimed_dataset())
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, texts)
    h5py.h5ds.set_scale(made, name.encode())
    return made


def dimension(parent: Any, name: str, size: int) -> Any:
    """A new dimension scale with a length and without values, as netCDF writes it."""
    made = dataset(parent, name, h5py.h5t.STD_U8LE, (size,), _never())
    h5py.h5ds.set_scale(made, f"{NO_VARIABLE}{size:10d}".encode())
    return made


def attach(made: Any, *scales: Any) -> None:
    """Attach scales to the leading axes of a dataset."""
    for axis, scale in enumerate(scales):
        h5py.h5ds.attach_scale(made, scale, axis)


def attribute_bytes(value: Value) -> int:
    """The bytes that an attribute needs, without its name."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, int | float):
        return 8
    return len(value) * max((len(one.encode()) if isinstance(one, str) else 8 for one in value), default=0)


def attribute(owner: Any, name: str, value: Value) -> Any:
    """A new attribute: text, a number, or a list of one of them."""
    if isinstance(value, str):
        return _write(owner, name, np.array(value.encode()))
    if isinstance(value, bool):
        return _write(owner, name, np.array(value, "<u1"))
    if isinstance(value, int | float):
        return _write(owner, name, np.array(value, "<f8" if isinstance(value, float) else "<u8" if value >= 1 << 63 else "<i8"))
    if all(isinstance(one, str) for one in value):
        return _write(owner, name, np.array([str(one).encode() for one in value], "S" if value else "S1"))
    return _write(owner, name, np.array(value, "<f8"))


def text_attribute(owner: Any, name: str, size: int) -> Any:
    """A new text attribute of a given length; `fill` writes its value later."""
    return h5py.h5a.create(owner, name.encode(), text_type(size), _SCALAR)


def fill(made: Any, value: str) -> None:
    """Write the value of a text attribute."""
    raw = np.array(value.encode())
    made.write(raw, mtype=text_type(raw.dtype.itemsize))


def _write(owner: Any, name: str, value: np.ndarray[Any, Any]) -> Any:
    space = h5py.h5s.create_simple(value.shape) if value.shape else _SCALAR
    if value.dtype.kind == "S":
        size = max(value.dtype.itemsize, 1)
        kind, value = text_type(size), value.astype(f"S{size}")
    else:
        kind = _TYPES[value.dtype.str[1:]]
    made = h5py.h5a.create(owner, name.encode(), kind, space)
    made.write(value, mtype=kind)
    return made
