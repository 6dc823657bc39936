"""A backend of xarray: `xarray.open_dataset("runs/a", engine="probes", group="acts/fc1:output")`, read when values are requested."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xarray import Dataset, Variable
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from probes.capture_file.dtype_decode import values_dtype
from probes.capture_file.series_part import CLOCKS
from probes.errors import AmbiguousSeries, RaggedSeries, UsageError
from probes.reader.convert import COORDINATES, axis_names
from probes.reader.run import open as open_run
from probes.reader.series import Series
from probes.reader.series_index import key_pattern
from probes.run_directory.search import is_run
from probes.signature import Coord

Axis = tuple[int, Coord]
"""The size of an axis, and its labels."""

READING = Lock()
"""HDF5 files are read by one thread at a time."""


class ProbesBackend(BackendEntrypoint):
    """Opens series of a run as an xarray dataset; its values are read lazily, over all epochs and ranks."""

    description = "Open runs of torch-probes, or single capture files"
    url = "https://pypi.org/project/torch-probes"
    open_dataset_parameters = ("filename_or_obj", "drop_variables", "group", "probe", "phase", "epoch", "rank")

    def open_dataset(  # type: ignore[override]  # a backend adds its own options
        self,
        filename_or_obj: str | os.PathLike[str],
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        probe: str | None = None,
        phase: str | None = None,
        epoch: int | slice | None = None,
        rank: int | slice | None = None,
    ) -> Dataset:
        """A dataset of one series (`group`, as `probes ls` prints it), or of all series of a probe in a phase.

        Args:
            filename_or_obj: a run directory, or a capture file.
            drop_variables: names of variables to leave out.
            group: name of a series; its variable is called `values`.
            probe: name of a probe; each variable is called `target:leaf`.
            phase: with `probe`, by default `train`; the name of a `group` has its phase, as in `acts/fc1:output@eval`.
            epoch: one epoch, or a slice.
            rank: one rank, or a slice.

        Raises:
            UsageError: neither or both of `group` and `probe` are given, or `group` and `phase`.
            RaggedSeries: the captures of a series differ in shape, or the series of a probe have other clocks.
            SeriesNotFound: there is no such series.
            AmbiguousSeries: several series fit `group`; the message lists them.
        """
        if (group is None) == (probe is None):
            words = ", ".join(f'group="{one.word}"' for one in open_run(os.fspath(filename_or_obj)).series[:3])
            raise UsageError(f'name one series or a probe, such as {words} or probe="NAME"')
        if group is not None and phase is not None:
            raise UsageError(f'`phase` is for `probe`; a group names its phase: group="PROBE/TARGET:LEAF@{phase}"')
        where = _Where(os.fspath(filename_or_obj), epoch, rank)
        run = where.run()
        if group is not None:
            found = {"values": _one(run, group)}
        else:
            found = {f"{one.key.target}:{one.key.leaf}": one for one in run.sel(phase=phase or "train").match(str(probe))}
        dropped = {drop_variables} if isinstance(drop_variables, str) else {*(drop_variables or ())}
        dataset = _dataset({name: one for name, one in found.items() if name not in dropped}, where)
        return dataset.drop_vars(dropped & {*dataset.coords}).assign_attrs(run.about)

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether a path is that of a run."""
        return isinstance(filename_or_obj, str | os.PathLike) and is_run(Path(filename_or_obj))


class _Where:
    """A part of a run, which another process can open."""

    def __init__(self, path: str, epoch: int | slice | None, rank: int | slice | None) -> None:
        self.path = path
        self.epoch = epoch
        self.rank = rank

    def run(self) -> Any:
        return open_run(self.path).sel(epoch=self.epoch, rank=self.rank)


class _LazyCaptures(BackendArray):
    """(step, *shape) captures of one series; only requested ones are read."""

    def __init__(self, series: Series, where: _Where) -> None:
        self.where = where
        self.word = series.word
        self.series: Series | None = series
        (shape,) = series.shapes
        self.shape = (len(series), *shape)
        self.dtype = values_dtype(series.dtype)

    def __getstate__(self) -> dict[str, Any]:
        """The state without open files."""
        return {**self.__dict__, "series": None}

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        first, *rest = key
        wanted = np.arange(self.shape[0])[first]
        captures, back = np.unique(wanted, return_inverse=True)
        with READING:
            self.series = self.series or self.where.run().find(self.word)
            found = self.series.take(captures) if len(captures) else np.empty((0, *self.shape[1:]), self.dtype)
        for axis, index in enumerate(rest, 1):  # one axis after the other: the indices of several axes form a grid
            found = found[(slice(None),) * axis + (index if isinstance(index, slice) else np.atleast_1d(index),)]
        scalars = tuple(axis for axis, index in enumerate(key) if not isinstance(index, slice) and np.ndim(index) == 0)
        return found[back.reshape(-1)].squeeze(scalars)


def _dataset(series: dict[str, Series], where: _Where) -> Dataset:
    known: dict[str, Axis] = {}
    variables: dict[str, Variable] = {}
    coordinates: dict[str, Any] = {}
    clocks = next((one.clocks for one in series.values()), np.empty(0, CLOCKS))
    for name, one in series.items():
        if len(one.shapes) > 1:
            raise RaggedSeries(f"the captures of `{one.word}` differ in shape; `.rows()` and `.masked()` of the reader join them")
        if not np.array_equal(one.clocks, clocks):
            raise RaggedSeries(f"`{one.word}` was captured in other steps than the first series of its probe; open it with `group`")
        dims = tuple(_distinct(one, known))
        array = indexing.LazilyIndexedArray(_LazyCaptures(one, where))
        attributes = {**one.key._asdict(), "torch_dtype": one.dtype}
        variables[name] = Variable(("step", *dims), array, attributes)
    coordinates |= {axis: list(labels) for axis, (_, labels) in known.items() if labels}
    if series:
        coordinates |= {column: ("step", clocks[column]) for column in ("step", *COORDINATES)}
    return Dataset(variables, coordinates)


def _one(run: Any, group: str) -> Series:
    """The series of a group.

    Raises:
        AmbiguousSeries: several fit; the message has the words of xarray for them, and not those of the reader.
    """
    with suppress(AmbiguousSeries):
        found: Series = run.find(group)
        if len(found.dtypes) == 1:
            return found
    meant = key_pattern(group)
    words = [one.word for many in run.series if meant(many.key) for one in many.by_dtype()]
    listed = "\n".join(f'  group="{word}"' for word in words)
    raise AmbiguousSeries(f'several series fit `group="{group}"`; write one of these:\n{listed}')


def _distinct(series: Series, known: dict[str, Axis]) -> Iterator[str]:
    """The names of the axes of a series; an axis that has another size or labels in another variable gets a number."""
    shape = series.shapes[0]
    for name, size in zip(axis_names(series.dims, len(shape)), shape, strict=True):
        axis = (size, series.signature.coords.get(name, ()))
        free = next(each for each in chain([name], (f"{name}_{number}" for number in count(1))) if known.get(each, axis) == axis)
        known[free] = axis
        yield free
