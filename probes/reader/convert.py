"""Captures as torch tensors and xarray arrays; each package is imported when it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from probes.errors import RaggedSeries
from probes.optional_package import import_optional
from probes.signature import DTYPES, Signature

if TYPE_CHECKING:
    import torch
    import xarray

COORDINATES = ("epoch", "global_step", "microstep", "call", "backward", "rank")
CLOCK = ["epoch", "step", "microstep", "call", "backward", "rank"]  # without global_step, which is derived from the other columns
ROW = "row"


def tensor_of_bits(bits: NDArray[Any], dtype: str) -> torch.Tensor:
    """The tensor with some bits.

    Args:
        bits: as `Series.bits` gives them; complex numbers are pairs on a last axis.
        dtype: torch's name, without prefix.

    Returns:
        A CPU tensor that shares the memory of `bits`.

    Raises:
        MissingExtra: torch is not installed.
    """
    package = import_optional("torch", "torch", "`Series.torch`")
    shape = bits.shape[:-1] if DTYPES[dtype].lanes > 1 else bits.shape
    kind = getattr(package, dtype.removeprefix("q") if dtype in ("quint8", "qint8", "qint32") else dtype)
    found: torch.Tensor = package.frombuffer(bits.data, dtype=kind).reshape(shape) if bits.size else package.empty(shape, dtype=kind)
    return found


def labelled_array(
    values: NDArray[Any], clocks: NDArray[Any], signature: Signature, name: str, attrs: Mapping[str, Any], *, stacked: bool
) -> xarray.DataArray:
    """Captures with their clocks and the names and labels of their axes.

    Args:
        values: (captures, *shape) if stacked, else (rows, ...).
        clocks: (n,) of `CLOCKS`, one for each entry of the first axis.
        signature: of a capture.
        name: of the array.
        attrs: of the array.
        stacked: whether the first axis is one of captures.

    Returns:
        (step, *dims), or (first dim or `row`, *dims); the clock is along the first axis.

    Raises:
        MissingExtra: xarray is not installed.
    """
    package = import_optional("xarray", "xarray", "`Series.xarray`")
    dims = ("step", *axis_names(signature.dims, values.ndim - 1)) if stacked else axis_names(signature.dims, values.ndim, ROW)
    coordinates: dict[str, Any] = {column: (dims[0], clocks[column]) for column in ("step", *COORDINATES)}
    coordinates |= axis_labels(signature, dims[1:] if stacked else dims)
    found: xarray.DataArray = package.DataArray(values, dims=dims, coords=coordinates, attrs=dict(attrs), name=name)
    return found


def joined_runs(
    captures: Mapping[str, tuple[NDArray[Any], NDArray[Any]]], signature: Signature, tags: Mapping[str, Sequence[str]]
) -> xarray.DataArray:
    """The same series of several runs along a first axis `run`.

    Args:
        captures: (captures, *shape) values and (captures,) clocks by name of the run.
        signature: of a capture.
        tags: further coordinates of the axis `run`.

    Returns:
        (run, step, *dims): captures with the same clock share a place on `step`; NaN if a run has none.

    Raises:
        RaggedSeries: the captures differ in shape.
        MissingExtra: xarray is not installed.
    """
    package = import_optional("xarray", "xarray", "`SeriesOfRuns.xarray`")
    if len({values.shape[1:] for values, _ in captures.values()}) > 1:
        shapes = ", ".join(f"{name} {values.shape[1:]}" for name, (values, _) in captures.items())
        raise RaggedSeries(f"the captures of the runs differ in shape: {shapes}")
    clocks = np.unique(np.concatenate([clocks[CLOCK] for _, clocks in captures.values()]))
    joined = _side_by_side(list(captures.values()), clocks)
    dims = ("run", "step", *axis_names(signature.dims, joined.ndim - 2))
    coordinates: dict[str, Any] = {"run": list(captures)} | {tag: ("run", list(found)) for tag, found in tags.items()}
    coordinates |= {column: ("step", clocks[column]) for column in CLOCK}
    found: xarray.DataArray = package.DataArray(joined, dims=dims, coords=coordinates | axis_labels(signature, dims[2:]))
    return found


def _side_by_side(captures: Sequence[tuple[NDArray[Any], NDArray[Any]]], clocks: NDArray[Any]) -> NDArray[Any]:
    """(runs, clocks, *shape), NaN if a run has no capture at a clock."""
    arrays = [values for values, _ in captures]
    whole = all(len(values) == len(clocks) for values in arrays)
    kind = np.result_type(*arrays) if whole else np.result_type(*arrays, np.float32)
    joined = np.full((len(arrays), len(clocks), *arrays[0].shape[1:]), 0 if whole else np.nan, kind)
    for out, (values, places) in zip(joined, captures, strict=True):
        out[np.searchsorted(clocks, places[CLOCK])] = values
    return joined


def axis_labels(signature: Signature, names: Sequence[str]) -> dict[str, Any]:
    """The labels of axes, by the names that `axis_names` gave the axes of a capture."""
    given = dict(zip(signature.dims or (), names, strict=False))
    return {given[name]: list(labels) for name, labels in signature.coords.items() if name in given}


def axis_names(dims: tuple[str, ...] | None, count: int, first: str = "dim_0", others: Sequence[str] = ()) -> tuple[str, ...]:
    """A distinct name for each axis; none is `step` or another name of the clock, nor one of some others."""
    names = list(dims or (first, *(f"dim_{index}" for index in range(1, count))))[:count]
    if len(names) != count:
        raise RaggedSeries(f"there are {count} axes and {len(names)} names: {', '.join(f'`{name}`' for name in names)}")
    taken = {"step", *COORDINATES, *others}
    for index, name in enumerate(names):
        names[index] = name if name not in taken else next(f"{name}_{n}" for n in range(1, count + 9) if f"{name}_{n}" not in taken)
        taken.add(names[index])
    return tuple(names)
