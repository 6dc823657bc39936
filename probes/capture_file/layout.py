"""The layout of a sealed file: one flat group per series, named axes, and space for the payloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from probes.capture_file import hdf5_write
from probes.capture_file.codecs import Compression
from probes.capture_file.grouped import JournalSeries
from probes.digest import FILE_ROOT, HEX, blake3_hex, blocks, canonical, canonical_v2
from probes.signature import DTYPES

FORMAT = "capture-file.v1"
LABELS = "labels_"
DESCRIBED = "described"
RESERVED = {"step", "global_step", "epoch", "microstep", "call", "backward", "order", "variant", "values", "row_size", "offset", "shape"}
RESERVED |= {"axis", "element", "block", "block_digest", "digest_byte", "complex"}

_LARGE = 64 * 1024
_LONGEST_INDEX = 1 << 16  # a longer axis gets no values, so that its index always needs less space than the captures
_MANY = 100


@dataclass(frozen=True)
class PlacedSeries:
    """One series and its offsets in the file.

    Attributes:
        series: the series.
        group: path of its group; no object stays open, as thousands of them make the HDF5 library slow.
        offset: where the payloads start, one capture after another; None if they are in chunks, or have no bytes.
        block_ends: for each digest block the index after its last capture.
        block_offset: offset of the block digests.
    """

    series: JournalSeries
    group: bytes
    offset: int | None
    block_ends: list[int]
    block_offset: int


class Layout:
    """A sealed file while it is being built.

    Args:
        path: the file; must not exist.
        compression: how payloads are stored, or None.
        series: about how many there will be.

    Attributes:
        handle: the open HDF5 file.
        root: its root group.
        columns: (offset, bytes) of what is small and still to be written.
    """

    def __init__(self, path: Path, compression: Compression | None = None, series: int = 0) -> None:
        self.handle = _create(path, series >= _MANY)
        self.root = h5py.h5g.open(self.handle, b"/")
        self.columns: list[tuple[int, bytes]] = []
        self._compression = compression
        self._captures: Any = None
        self._probes: dict[str, Any] = {}

    def texts(self, contents: dict[str, bytes]) -> None:
        """Make scalar text datasets at the root."""
        for name, content in contents.items():
            self._queue(hdf5_write.text(self.root, name, content), content)

    def attributes(self, owner: Any, values: dict[str, Any]) -> None:
        """Make attributes, and one that digests them.

        A value that is not a string, a number or a list of these is written as canonical JSON; a too large value, as a string dataset.
        """
        stored = {name: _stored(value) for name, value in values.items() if name != DESCRIBED}
        for name in [name for name, value in stored.items() if hdf5_write.attribute_bytes(value) > hdf5_write.LARGEST_ATTRIBUTE]:
            content = canonical(stored.pop(name))
            self._queue(hdf5_write.text(owner, name, content), content)
        for name, value in stored.items():
            hdf5_write.attribute(owner, name, value)
        hdf5_write.attribute(owner, DESCRIBED, blake3_hex(canonical_v2(stored)))

    def file_root(self) -> range:
        """Make the dataset of the digest that `file_root` computes, and return where its bytes are to be written."""
        start = int(hdf5_write.text(self.root, FILE_ROOT, bytes(HEX)).get_offset())
        return range(start, start + HEX)

    def captures(self) -> Any:
        """The group of the probes' groups."""
        if self._captures is None:
            self._captures = hdf5_write.group(self.root, "captures")
            hdf5_write.attribute(self._captures, "NX_class", "NXentry")
        return self._captures

    def add(self, series: JournalSeries) -> PlacedSeries:
        """Make the group of a series, with everything in it except payloads and digests."""
        probe, name = series.place
        if probe not in self._probes:
            self._probes[probe] = hdf5_write.group(self.captures(), probe)
            hdf5_write.attribute(self._probes[probe], "NX_class", "NXcollection")
        group = hdf5_write.group(self._probes[probe], name)
        if series.layout == "stacked":
            self._lead_to(probe, name)
        step = self._column(group, "step", "u4", series.clocks["step"])
        self._column(group, "global_step", "u8", series.global_steps, step)
        for column in series.varying:
            self._column(group, column, "i4" if column == "microstep" else "u4", series.column(column), step)
        values, axes = self._values(group, series, step)
        coordinates = " ".join(["global_step", *series.varying])
        if series.layout == "stacked":
            hdf5_write.attribute(values, "coordinates", coordinates)
        self._describe(group, series, axes)
        ends = blocks(series.sizes.tolist())
        place = values.get_offset() if _is_contiguous(values) else None
        hdf5_write.text_attribute(group, "digest", HEX)
        return PlacedSeries(series, f"captures/{probe}/{name}".encode(), place, ends, self._block_digests(group, len(ends)))

    def values(self, place: PlacedSeries) -> Any:
        """The dataset of a series' payloads."""
        return h5py.h5d.open(self.root, place.group + b"/values")

    def write_digest(self, place: PlacedSeries, digest: str) -> None:
        """Write the digest of a series."""
        group = h5py.h5g.open(self.root, place.group)
        hdf5_write.fill(h5py.h5a.open(group, b"digest"), digest)

    def add_ids(self, phase: str, steps: Sequence[int], ids: Sequence[Sequence[Any]]) -> None:
        """Make the group with the samples that the steps of a phase saw.

        Args:
            phase: escaped name of the phase.
            steps: the steps, ascending.
            ids: for each of them integers or texts.
        """
        if b"steps" not in self.root:
            hdf5_write.group(self.root, "steps")
        group = hdf5_write.group(h5py.h5g.open(self.root, b"steps"), phase)
        step = self._column(group, "step", "u4", np.array(steps))
        sizes = self._column(group, "row_size", "i8", np.array([len(row) for row in ids]), step)
        hdf5_write.attribute(sizes, "sample_dimension", "sample")
        flat = [one for row in ids for one in row]
        kind, content = _id_column(flat)
        made = hdf5_write.dataset(group, "sample_id", kind, (len(flat),))
        hdf5_write.attach(made, hdf5_write.dimension(group, "sample", len(flat)))
        self._queue(made, content)

    def close(self) -> None:
        """Close the file in the HDF5 library."""
        self._captures = None
        self._probes.clear()
        self.root = None
        self.handle.close()

    def _values(self, group: Any, series: JournalSeries, step: Any) -> tuple[Any, dict[str, list[str]]]:
        lanes = (DTYPES[series.dtype].lanes,) if DTYPES[series.dtype].lanes > 1 else ()
        first, names, shape = self._axes(group, series, step)
        kind = hdf5_write.value_type(series.dtype)
        properties = None if self._compression is None else self._compression.properties((*shape, *lanes), kind.get_size())
        values = hdf5_write.dataset(group, "values", kind, (*shape, *lanes), properties)
        labels = _labels(series, names)
        scales = [self._scale(group, name, size, labels.get(name, ())) for name, size in zip(names, shape[len(first) :], strict=True)]
        names = [*(["step"] if first else []), *names]
        if lanes:
            scales.append(self._scale(group, "complex", 2))
            names.append("complex")
        hdf5_write.attach(values, *first, *scales)
        return values, _axes_of_plot(
            names, [size <= _LONGEST_INDEX or name in (*labels, "step") for name, size in zip(names, (*shape, *lanes), strict=True)]
        )

    def _scale(self, group: Any, name: str, size: int, labels: Sequence[Any] = ()) -> Any:
        """A dimension scale that holds the labels of its axis, or 0, 1, 2 and so on; a long axis without labels has only its length."""
        if labels and all(isinstance(label, str) for label in labels):
            return hdf5_write.text_coordinate(group, name, labels)
        if labels:
            return self._column(group, name, "f8", np.array(labels, "f8"))
        return self._column(group, name, "u4", np.arange(size)) if size <= _LONGEST_INDEX else hdf5_write.dimension(group, name, size)

    def _lead_to(self, probe: str, name: str) -> None:
        """Let viewers that follow the attribute `default` find a plot: the first series of each probe that has an axis of steps."""
        for owner, child in ((self.captures(), probe), (self._probes[probe], name)):
            if not h5py.h5a.exists(owner, b"default"):
                hdf5_write.attribute(owner, "default", child)

    def _axes(self, group: Any, series: JournalSeries, step: Any) -> tuple[list[Any], list[str], tuple[int, ...]]:
        """The scales that exist, the names of missing ones, and the sizes of all axes."""
        names = axis_names(series)
        if series.layout == "stacked":
            return [step], names, (series.count, *series.shapes[0])
        if series.layout == "concatenated":
            rows = series.shape_table()[:, 0]
            sizes = self._column(group, "row_size", "i8", rows, step)
            hdf5_write.attribute(sizes, "sample_dimension", names[0])
            return [], names, (int(rows.sum()), *series.shapes[0][1:])
        elements = series.elements
        self._column(group, "offset", "u8", np.cumsum(elements) - elements, step)
        table = series.shape_table()
        shape = hdf5_write.dataset(group, "shape", hdf5_write.number_type("i8"), table.shape)
        hdf5_write.attach(shape, step, hdf5_write.dimension(group, "axis", table.shape[1]))
        self._queue(shape, table.astype("<i8").tobytes())
        return [], ["element"], (int(elements.sum()),)

    def _describe(self, group: Any, series: JournalSeries, axes: dict[str, list[str]]) -> None:
        about: dict[str, Any] = {**series.key._asdict(), "torch_dtype": series.dtype, "layout": series.layout}
        about |= {"NX_class": "NXdata", "signal": "values"} | axes | series.constants
        if series.dims:
            about["dims"] = list(series.dims)
        about |= {LABELS + name: list(labels) for name, labels in series.coords.items() if labels}
        if series.variants:
            about["variants"] = series.variants
        self.attributes(group, {**{name: value for name, value in series.attrs.items() if name not in about}, **about})

    def _block_digests(self, group: Any, count: int) -> int:
        made = hdf5_write.dataset(group, "block_digest", hdf5_write.number_type("u1"), (count, 32))
        hdf5_write.attach(made, hdf5_write.dimension(group, "block", count), hdf5_write.dimension(group, "digest_byte", 32))
        return int(made.get_offset())

    def _column(self, group: Any, name: str, kind: str, content: np.ndarray[Any, Any], step: Any = None) -> Any:
        if step is None:
            made = hdf5_write.coordinate(group, name, hdf5_write.number_type(kind), len(content))
        else:
            made = hdf5_write.dataset(group, name, hdf5_write.number_type(kind), (len(content),))
            hdf5_write.attach(made, step)
        self._queue(made, content.astype(f"<{kind}").tobytes())
        return made

    def _queue(self, made: Any, content: bytes) -> None:
        if content:
            self.columns.append((made.get_offset(), content))


def _labels(series: JournalSeries, names: Sequence[str]) -> dict[str, Sequence[Any]]:
    """The labels of the axes of `values` that all captures share, by the name of the axis in the file."""
    if series.layout != "stacked" or not series.dims or len(series.dims) != len(names):
        return {}
    found = {name: series.coords.get(dim) or [] for name, dim in zip(names, series.dims, strict=True)}
    sizes = dict(zip(names, series.shapes[0], strict=True))
    return {name: labels for name, labels in found.items() if len(labels) == sizes[name] and _is_plain(labels) and labels}


def _axes_of_plot(names: list[str], valued: list[bool]) -> dict[str, list[str]]:
    """The attributes that name the axes of `values`; NeXus writes `.` for an axis without values, and `dimensions` then has all names."""
    if all(valued):
        return {"axes": names}
    return {"axes": [name if there else "." for name, there in zip(names, valued, strict=True)], "dimensions": names}


def axis_names(series: JournalSeries) -> list[str]:
    """Names of the axes of a capture in the file: those of the spec, or `dim_0` and so on.

    A name that is used twice, or that a variable of the file has, gets a number.
    """
    rank = len(series.shapes[0])
    named = series.dims is not None and len(series.dims) == rank
    wanted = list(series.dims or ()) if named else [f"dim_{axis}" for axis in range(rank)]
    if series.layout == "concatenated" and not named:
        wanted[0] = "row"
    used = set(RESERVED)
    names = []
    for name in wanted:
        plain = name.replace("/", "_") or "dim"
        free = (candidate for candidate in (plain, *(f"{plain}_{n}" for n in range(1, rank + 2))) if candidate not in used)
        names.append(next(free))
        used.add(names[-1])
    return names


def _create(path: Path, many: bool) -> Any:
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fapl_sec2()  # HDF5_DRIVER in the environment would choose another
    access.set_libver_bounds(h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_V110)
    access.set_file_locking(False, True)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_alignment(_LARGE, 4096)
    if many:
        access.set_meta_block_size(_LARGE)  # a third less time for thousands of groups, but 50 KB more in a file with few
    return h5py.h5f.create(bytes(path), h5py.h5f.ACC_EXCL, fapl=access)


def _is_contiguous(values: Any) -> bool:
    return bool(values.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS)


def _stored(value: Any) -> Any:
    """A value in the form in which it is read back: no booleans, and lists of numbers are floats."""
    if not _is_plain(value):
        return canonical(value).decode()
    if isinstance(value, list | tuple):
        return [one if isinstance(one, str) else float(one) for one in value]
    return int(value) if isinstance(value, bool) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, str | int | float):
        return not isinstance(value, int) or -(1 << 63) <= value < 1 << 64
    texts = isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) for one in value)
    return texts or (isinstance(value, list | tuple) and bool(value) and all(type(one) in (int, float) for one in value))


def _id_column(flat: list[Any]) -> tuple[Any, bytes]:
    """The type and bytes of sample ids: 64-bit integers if all are integers, else text."""
    if all(type(one) is int and -(1 << 63) <= one < 1 << 63 for one in flat):
        return hdf5_write.number_type("i8"), np.array(flat, "<i8").tobytes()
    raw = [(one if isinstance(one, str) else canonical(one).decode()).encode() for one in flat]
    width = max(map(len, raw), default=1) or 1
    return hdf5_write.text_type(width), b"".join(one.ljust(width, b"\0") for one in raw)
