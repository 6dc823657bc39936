"""Series as torch tensors and xarray arrays. The reader finds these functions by name, so that it needs neither package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from probes.errors import MissingExtra, RaggedSeries
from probes.signature import DTYPES

if TYPE_CHECKING:
    import torch
    import xarray

    from probes.reader.series import Series

COORDINATES = ("epoch", "global_step", "microstep", "call", "backward", "rank")
CLOCK = ["epoch", "step", "microstep", "call", "backward", "rank"]  # without global_step, which follows from them in a run
ROW = "row"


def to_torch(series: Series) -> torch.Tensor:
    """The captures of a series as one tensor.

    Args:
        series: captures of one shape.

    Returns:
        (captures, *shape), of the dtype that was captured, on the CPU, owned by the caller. Quantized values come back as
        their integers.

    Raises:
        RaggedSeries: the captures differ in shape.
        MissingExtra: torch is not installed.
    """
    torch = _package("torch", "torch")
    bits = series.bits()
    shape = bits.shape[:-1] if DTYPES[series.dtype].lanes > 1 else bits.shape
    name = series.dtype.removeprefix("q") if series.dtype in ("quint8", "qint8", "qint32") else series.dtype
    dtype = getattr(torch, name)
    if not bits.size:
        return torch.empty(shape, dtype=dtype)  # type: ignore[no-any-return]  # torch is found by name
    return torch.frombuffer(bits.data, dtype=dtype).reshape(shape)  # type: ignore[no-any-return]  # torch is found by name


def to_xarray(series: Series) -> xarray.DataArray:
    """The captures of a series as a labelled array.

    Args:
        series: captures of one shape, or of shapes that differ in their first size only.

    Returns:
        (step, *dims) where all captures are of one shape, with the clock beside `step`; else (first dim or `row`, *dims),
        with the clock of its capture, `step` included, beside each row. Labels are coordinates.

    Raises:
        RaggedSeries: the captures differ in more than their first size.
        MissingExtra: xarray is not installed.
    """
    xarray = _package("xarray", "xarray")
    signature = series.signature
    if signature.shape is not None and None not in signature.shape:
        dims = ("step", *_dims(signature.dims, len(signature.shape)))
        values, clocks = series.numpy(), series.clocks
    else:
        values = series.rows()
        dims = _dims(signature.dims, values.ndim, ROW)
        clocks = np.repeat(series.clocks, series.row_sizes)
    coordinates: dict[str, Any] = {"step": (dims[0], clocks["step"])}
    coordinates |= {name: (dims[0], clocks[name]) for name in COORDINATES}
    coordinates |= {name: list(labels) for name, labels in signature.coords.items() if name in dims}
    key = series.key
    attrs = {"probe": key.probe, "target": key.target, "leaf": key.leaf, "phase": key.phase, "torch_dtype": series.dtype}
    return xarray.DataArray(values, dims=dims, coords=coordinates, attrs=series.attrs | attrs, name=str(key))  # type: ignore[no-any-return]  # as above


def join_runs(series: Mapping[str, Series], tags: Mapping[str, Sequence[str]]) -> xarray.DataArray:
    """The same series of several runs along a first axis `run`.

    Args:
        series: captures of one shape, by name of the run.
        tags: further coordinates of the axis `run`.

    Returns:
        (run, step, *dims): captures with the same clock stand beside each other; NaN where a run has none.

    Raises:
        RaggedSeries: the captures differ in shape.
        MissingExtra: xarray is not installed.
    """
    xarray = _package("xarray", "xarray")
    places = {name: one.clocks[CLOCK] for name, one in series.items()}
    clocks = np.unique(np.concatenate(list(places.values())))
    arrays = [one.numpy() for one in series.values()]
    if len({array.shape[1:] for array in arrays}) > 1:
        shapes = ", ".join(f"{name} {array.shape[1:]}" for name, array in zip(series, arrays, strict=True))
        raise RaggedSeries(f"the captures of the runs differ in shape: {shapes}")
    whole = all(len(array) == len(clocks) for array in arrays)
    kind = np.result_type(*arrays) if whole else np.result_type(*arrays, np.float32)
    joined = np.full((len(arrays), len(clocks), *arrays[0].shape[1:]), 0 if whole else np.nan, kind)
    for out, array, found in zip(joined, arrays, places.values(), strict=True):
        out[np.searchsorted(clocks, found)] = array
    signature = next(iter(series.values())).signature
    dims = ("run", "step", *_dims(signature.dims, joined.ndim - 2))
    coordinates: dict[str, Any] = {"run": list(series)} | {name: ("run", list(found)) for name, found in tags.items()}
    coordinates |= {name: ("step", clocks[name]) for name in CLOCK}
    coordinates |= {name: list(labels) for name, labels in signature.coords.items() if name in dims}
    return xarray.DataArray(joined, dims=dims, coords=coordinates)  # type: ignore[no-any-return]  # xarray is found by name


def _dims(dims: tuple[str, ...] | None, count: int, first: str = "dim_0") -> tuple[str, ...]:
    """A distinct name for each axis; none is `step`, which the clock takes."""
    names = list(dims or (first, *(f"dim_{index}" for index in range(1, count))))[:count]
    if len(names) != count:
        raise RaggedSeries(f"the axes are called {', '.join(names)}, but there are {count}")
    taken = {"step", *COORDINATES}
    for index, name in enumerate(names):
        names[index] = name if name not in taken else next(f"{name}_{n}" for n in range(1, count + 9) if f"{name}_{n}" not in taken)
        taken.add(names[index])
    return tuple(names)


def _package(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        command = "pip install torch" if extra == "torch" else f'pip install "torch-probes[{extra}]"'
        raise MissingExtra(f'"{name}" is not installed; install it with: {command}') from error
