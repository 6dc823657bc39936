"""Captures as a zarr group: a folder of chunks, for dask and for object stores."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from probes.capture_file.dtype_decode import values_dtype
from probes.capture_file.series_name import escape, group_name
from probes.optional_package import import_optional
from probes.progress.loops import with_progress
from probes.reader.convert import COORDINATES, axis_labels, axis_names
from probes.reader.export.clock_columns import whole
from probes.reader.export.joined_shape import joined_shape
from probes.reader.series import Series

CHUNK_BYTES = 1 << 20


def write_zarr(folder: Path, series: Sequence[Series], *, about: Mapping[str, str]) -> None:
    """Write a group for each series, as `xarray.open_zarr(folder, group="acts/fc1:output")` reads it.

    The group has the array `values` over (step, *dims), and the coordinates of the clock and the labels of axes. If captures differ in
    their number of rows, the first axis is `row`, and each coordinate has an entry for each row.

    Raises:
        MissingExtra: zarr is not installed.
        UsageError: captures differ in more than their number of rows.
    """
    package = import_optional("zarr", "zarr", "the format `zarr`")
    shapes = [joined_shape(one) for one in series]
    root = package.open_group(store=str(folder), mode="w", attributes=dict(about))
    several = {one.key for one in series if sum(one.key == other.key for other in series) > 1}
    for one, shape in with_progress([*zip(series, shapes, strict=True)], "series"):
        name = group_name(one.key, one.dtype if one.key in several else "")
        name = f"%5F{name[1:]}" if name.startswith("__") else name  # zarr reserves such names
        group = root.require_group(escape(one.key.probe)).require_group(name)
        group.attrs.update({**one.key._asdict(), "torch_dtype": one.dtype})
        _write_series(group, one, shape)
        _consolidate(package, group)
    _consolidate(package, root)


def _write_series(group: Any, series: Series, shape: tuple[int, ...]) -> None:
    stacked = len(series.shapes) == 1
    first = "step" if stacked else "row"
    axes = axis_names(series.dims, len(series.shapes[0]), others=("values",) if stacked else ("values", first))
    dims = (first, *axes[0 if stacked else 1 :])
    row_bytes = prod(shape[1:]) * values_dtype(series.dtype).itemsize
    chunk = max(min(CHUNK_BYTES // max(row_bytes, 1), shape[0]), 1)
    chunks = (chunk, *(max(size, 1) for size in shape[1:]))
    values = group.create_array("values", shape=shape, chunks=chunks, dtype=values_dtype(series.dtype), dimension_names=dims)
    done = 0
    for batch in series.batches(max(chunk * prod(shape[1:]), 1)):
        if batch.bits.size:  # `-1` has no meaning where an axis has size 0
            found = batch.values().reshape(-1, *shape[1:])
            values[done : done + len(found)] = found
            done += len(found)
    counts = 1 if stacked else series.row_sizes
    for name in ("step", *COORDINATES):
        group.create_array(name, data=np.repeat(whole(series.clocks[name]), counts), dimension_names=(first,))
    values.attrs["coordinates"] = " ".join(("step", *COORDINATES))  # of the conventions for climate and forecast, which xarray follows
    for axis, labels in axis_labels(series.signature, axes).items():
        if axis in dims and labels:
            group.create_array(axis, data=_labels(labels), dimension_names=(axis,))


def _consolidate(package: Any, group: Any) -> None:
    """Repeat the metadata of all arrays below a group in the group, so that a reader of a remote store fetches them at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns that its format 3 does not specify it yet
        package.consolidate_metadata(group.store, path=group.path)


def _labels(labels: Sequence[Any]) -> Any:
    return np.array(labels, np.dtypes.StringDType()) if any(isinstance(one, str) for one in labels) else np.array(labels)
