"""One side of a comparison across layouts: the captures of all ranks of a launch, as one process would have made them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype
from probes.capture_file.series_name import SeriesAddress
from probes.capture_file.series_part import UNKNOWN_ORDER, SeriesPart, StepColumn, StepIds, attrs_of, shape_of, stored_shape
from probes.clock import LOSS_SCALE, SeriesKey
from probes.errors import UsageError
from probes.proof.comparison.compared_run import CaptureTable, ComparedRun, Group
from probes.reader.ranks.full import WHOLE, Coordinate, Merge, merge_named, one_sharding, put_together, sharding_of
from probes.reader.ranks.merged_numbers import BY_ELEMENT, MERGES, merge_of
from probes.run_directory.listing import Directory
from probes.signature import DTYPES, Coord

LOCAL = ("increment", "accumulated")  # stages of a gradient at which each rank has the gradient of its own batch
PLAIN_FLOATS = ("float16", "float32", "float64")  # dtypes whose numbers can be summed
TransformsOf = Callable[[str], Sequence[Mapping[str, Any]]]
TIMES = ["epoch", "step", "microstep", "call", "backward"]


class MergedRun(ComparedRun):
    """A run whose ranks are merged, by rules for each kind of value.

    Parts of a DTensor are put together. Other parameters, their gradients in use and their state are the same on every rank. Gradients of
    one rank's batch, and numbers of the loop, are averaged. Values of a batch are joined along their first axis; their gradients are
    divided by the number of ranks, since the loss of each rank is a mean over its own rows. Numbers of a batch, such as `stats`, are
    merged; what cannot be merged stays side by side, and so cannot be compared.

    Args:
        directory: the run.
        transforms: of each probe, as the resolved spec has them, with numbers of axes.
        concat: join values of a batch; else those of each rank stay side by side, which no single process has.
    """

    def __init__(self, directory: Directory, transforms: TransformsOf, *, concat: bool) -> None:
        super().__init__(directory)
        self._transforms = transforms
        self._concat = concat
        self._merged: dict[tuple[int, SeriesKey], MergedPart] = {}

    @cached_property
    def _by_epoch(self) -> dict[tuple[int, SeriesKey], list[tuple[int, SeriesPart, StepIds | None]]]:
        found: dict[tuple[int, SeriesKey], list[tuple[int, SeriesPart, StepIds | None]]] = defaultdict(list)
        for entry in self._directory.current:
            for address in self._directory.addresses(entry.name):
                if address.key.leaf != LOSS_SCALE:
                    part = self._directory.part(entry.name, address)
                    found[entry.epoch, address.key].append((entry.rank, part, self._directory.ids(entry.name, address.key.phase)))
        return found

    @cached_property
    def places(self) -> dict[Group, dict[SeriesKey, list[tuple[str, SeriesAddress]]]]:
        """Series by epoch; every rank counts as rank 0."""
        found: dict[Group, dict[SeriesKey, list[tuple[str, SeriesAddress]]]] = {}
        for epoch, key in self._by_epoch:
            found.setdefault((epoch, 0), {})[key] = [(str(epoch), SeriesAddress(key))]
        return found

    def part(self, place: tuple[str, SeriesAddress]) -> SeriesPart:
        """A merged series of an epoch."""
        epoch, key = int(place[0]), place[1].key
        if (epoch, key) not in self._merged:
            self._merged = {
                (epoch, key): MergedPart(key, self._by_epoch[epoch, key], self._transforms(key.probe), concat=self._concat)
            }  # so that only one is in memory
        return self._merged[epoch, key]

    def table(self, group: Group, key: SeriesKey | None) -> CaptureTable:
        """The merged captures of a series in an epoch."""
        places = self.places.get(group, {}).get(key, []) if key is not None else []
        return CaptureTable([self.part(place) for place in places], [])


class MergedPart:
    """One series in one epoch, over all ranks; a `SeriesPart`."""

    def __init__(
        self,
        key: SeriesKey,
        parts: Sequence[tuple[int, SeriesPart, StepIds | None]],
        transforms: Sequence[Mapping[str, Any]],
        *,
        concat: bool,
    ) -> None:
        first = parts[0][1]
        self.key, self.dtype, self.attrs, self.variants = key, first.dtype, first.attrs, None
        self.dims: tuple[str, ...] | None = None
        self.coords: dict[str, Coord] = {}
        self._concat = concat
        self._merges = merge_of(transforms, {0})
        self._is_linear = all(one.get("kind") == "cast" for one in transforms)
        rows: dict[tuple[int, ...], dict[int, tuple[SeriesPart, int, StepIds | None]]] = defaultdict(dict)
        for rank, part, ids in parts:
            if part.dtype != self.dtype:
                raise UsageError(f"`{key}` has several dtypes; runs of another layout are compared with one")
            for index, clock in enumerate(part.clocks[TIMES].tolist()):
                rows[tuple(clock)][rank] = (part, index, ids)
        made = [(clock, self._value(clock, rows[clock])) for clock in sorted(rows)]
        self._values = [np.ascontiguousarray(value) for _, value in made]
        self.clocks = np.zeros(len(made), first.clocks.dtype)
        for name, column in zip(TIMES, zip(*(clock for clock, _ in made), strict=True), strict=True):
            self.clocks[name] = column
        self.clocks["global_step"] = self.clocks["step"]
        self.steps = StepColumn(self.clocks)
        lanes = int(DTYPES[self.dtype].lanes > 1)
        shapes = [value.shape[: value.ndim - lanes] for value in self._values]
        most = max(map(len, shapes))
        self.shapes: NDArray[np.int64] = np.array([[*shape, *[-1] * (most - len(shape))] for shape in shapes], np.int64).reshape(
            len(shapes), most
        )
        self.shape = shapes[0] if len(set(shapes)) == 1 else None

    @property
    def orders(self) -> NDArray[np.uint32]:
        """(captures,) not known: the ranks captured in parallel."""
        return np.full(len(self.clocks), UNKNOWN_ORDER, np.uint32)

    def elements(self, first: int, last: int) -> NDArray[Any]:
        """The exact bits of the captures `first` to `last` (exclusive), flat."""
        return np.concatenate([np.empty(0, bits_dtype(self.dtype)), *(value.reshape(-1) for value in self._values[first:last])])

    def _value(self, clock: tuple[int, ...], found: dict[int, tuple[SeriesPart, int, StepIds | None]]) -> NDArray[Any]:
        """The capture that one process would have made at a clock."""
        values = {rank: _bits(part, index) for rank, (part, index, _) in sorted(found.items())}
        where = f"`{self.key}` at epoch {clock[0]}, step {clock[1]}"
        attrs = {rank: attrs_of(part, index) for rank, (part, index, _) in found.items()}
        shardings = {rank: sharding_of(one) for rank, one in attrs.items()}
        if all(one is not None for one in shardings.values()):
            kinds = {str(one.get("merges", "")) if "transforms_of" in one else WHOLE for one in attrs.values()}
            return self._put_together(values, shardings, where, merge_named(self.key, kinds))
        if len(values) == 1 and not self._concat:
            return next(iter(values.values()))
        root, hook = self.key.leaf.partition(".")[0], self.attrs.get("hook")
        if hook == "tensor" and self.attrs.get("stage") not in LOCAL:
            return put_together({(rank,): value for rank, value in enumerate(values.values())}, ["R"], where)
        if hook == "loop" or (hook == "tensor" and self.attrs.get("stage") in LOCAL and self._is_linear):
            return self._mean(list(values.values()))
        if self._concat and hook != "tensor" and self._merges:
            return self._merged_numbers(list(values.values()), divided=root.startswith("grad"))
        if self._concat and hook != "tensor" and self._merges == BY_ELEMENT and all(value.ndim for value in values.values()):
            return self._joined(clock, values, found, divided=root.startswith("grad"))
        return np.stack(list(values.values())) if len({value.shape for value in values.values()}) == 1 else next(iter(values.values()))

    def _merged_numbers(self, values: list[NDArray[Any]], *, divided: bool) -> NDArray[Any]:
        """The numbers of the whole batch from those of each rank's rows; for gradients, the loss of all ranks is the mean of theirs."""
        numbers = MERGES[str(self._merges)](values)
        if divided and str(self._merges).startswith("norm") and self._merges != "norm l0":
            numbers = numbers / len(values)
        elif divided and self._merges == "stats":
            numbers = np.concatenate((numbers[:1], numbers[1:6] / len(values), numbers[6:]))
        elif divided:
            return np.stack(values)
        return np.asarray(numbers, values[0].dtype)

    def _put_together(self, values: dict[int, NDArray[Any]], shardings: dict[int, Any], where: str, merge: Merge | None) -> NDArray[Any]:
        first = one_sharding(shardings.values(), where)
        blocks: dict[Coordinate, NDArray[Any]] = {shardings[rank].coordinate: value for rank, value in values.items()}
        missing = [at for at in product(*map(range, first.mesh_shape)) if at not in blocks]
        if missing:
            raise UsageError(f"{where} has no capture of the rank at {missing[0]} of the mesh {first.mesh_shape}")
        if self.dtype not in PLAIN_FLOATS and any(placement.startswith("P") for placement in first.placements):
            raise UsageError(f"{where} has partial values of `{self.dtype}`; those of {', '.join(PLAIN_FLOATS)} can be summed")
        return put_together(blocks, first.placements, where, merge)

    def _mean(self, values: list[NDArray[Any]]) -> NDArray[Any]:
        """The mean, in double precision; equal numbers keep their bits."""
        if all(value.tobytes() == values[0].tobytes() for value in values):
            return values[0]
        if self.dtype not in PLAIN_FLOATS:
            return values[0] if len(values) == 1 else np.stack(values)
        return np.asarray(np.stack(values).astype(np.float64).mean(axis=0), values[0].dtype)

    def _joined(self, clock: tuple[int, ...], values: dict[int, NDArray[Any]], found: dict[int, Any], *, divided: bool) -> NDArray[Any]:
        """The rows of all ranks, in the order of their sample ids if the run has them, else rank by rank."""
        rows = np.concatenate(list(values.values()))
        if divided and self.dtype in PLAIN_FLOATS:
            rows = (rows.astype(np.float64) / len(values)).astype(rows.dtype)
        ids = [one for rank in values if (one := _ids_of(found[rank][2], clock[1])) is not None]
        if [len(one) for one in ids] == [len(value) for value in values.values()]:
            rows = rows[np.argsort(np.concatenate(ids), kind="stable")]
        return rows


def _bits(part: SeriesPart, index: int) -> NDArray[Any]:
    shape = stored_shape(shape_of(part.shapes[index]), part.dtype)
    return np.asarray(part.elements(index, index + 1)).reshape(shape)


def _ids_of(ids: StepIds | None, step: int) -> NDArray[Any] | None:
    """The sample ids of a step."""
    at = np.flatnonzero(ids.steps == step).tolist() if ids is not None else []
    if ids is None or not at:
        return None
    start = int(np.sum(ids.sizes[: at[0]]))
    return np.asarray(ids.ids[start : start + int(ids.sizes[at[0]])])
