"""One side of a comparison whose separate projections are joined, because the other side has them in one module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.series_name import SeriesAddress
from probes.capture_file.series_part import StepColumn, shape_of, stored_shape, uniform
from probes.clock import SeriesKey
from probes.errors import UsageError, nearest
from probes.proof.comparison.compared_run import CaptureTable, ComparedRun, Group
from probes.proof.comparison.mapping import Fusion, MappedName
from probes.proof.comparison.pairing import DATA_PARALLEL, is_parallel, normalised
from probes.reader.ranks.merged_numbers import MERGES, merge_of
from probes.signature import Coord

ALONG_LAST = ("output", "grad_output")  # roots of values whose features are the last axis; those of parameters are the first
SAME = ("input",)  # values that are the same for all projections
SUMMED = ("grad_input",)

Values = Sequence[NDArray[Any]]


class JoinedSeries(NamedTuple):
    """A series that is made of others.

    Attributes:
        fusion: what says so.
        parts: the series that it is made of, in their order.
        merges: how results of transforms make one; empty for the values themselves.
    """

    fusion: Fusion
    parts: tuple[SeriesKey, ...]
    merges: str


class JoinedRun(ComparedRun):
    """A run whose separate projections are joined.

    Args:
        run: the run.
        fusions: what to join; each must apply.
        transforms: of each probe, as the resolved spec has them.

    Raises:
        UsageError: a module of a fusion is not in the run.
    """

    def __init__(self, run: ComparedRun, fusions: Sequence[Fusion], transforms: Callable[[str], Sequence[Mapping[str, Any]]]) -> None:
        self._run = run
        self._transforms = transforms
        self._joined: dict[SeriesKey, JoinedSeries] = {}
        for fusion in fusions:
            self._add(fusion)

    def _add(self, fusion: Fusion) -> None:
        names = normalised(self._run.keys)
        require_modules(fusion, fusion.parts, names, first=fusion.splits_first)
        prefix = f"{DATA_PARALLEL}." if is_parallel(self._run.keys) else ""
        found: dict[SeriesKey, dict[int, SeriesKey]] = {}
        for name, key in names.items():
            for number, part in enumerate(fusion.parts):
                matched = part.matches(name.target)
                if matched is not None and fusion.leaf in ("", key.leaf):
                    target = prefix + fusion.whole.filled(matched[0]) + matched[1]
                    found.setdefault(key._replace(target=target), {})[number] = key
        for whole, parts in found.items():
            merges = merge_of(self._transforms(whole.probe))
            root = whole.leaf.partition(".")[0]
            if len(parts) == len(fusion.parts) and merges is not None and not (merges and root in SUMMED):
                self._joined[whole] = JoinedSeries(fusion, tuple(parts[number] for number in sorted(parts)), merges)

    @cached_property
    def places(self) -> dict[Group, dict[SeriesKey, list[tuple[str, SeriesAddress]]]]:
        """Series by epoch and rank, without the parts of joined series."""
        gone = {key for one in self._joined.values() for key in one.parts}
        found = {}
        for group, series in self._run.places.items():
            found[group] = {key: places for key, places in series.items() if key not in gone}
            for key, one in self._joined.items():
                if all(part in series for part in one.parts):
                    found[group][key] = [("", SeriesAddress(key))]
        return found

    def table(self, group: Group, key: SeriesKey | None) -> CaptureTable:
        """The captures of a series, joined where a fusion says so."""
        one = self._joined.get(key) if key is not None else None
        if key is None or one is None or key not in self.places.get(group, {}):
            return self._run.table(group, key)
        return JoinedTable(key, one, [self._run.table(group, part) for part in one.parts])


class JoinedTable(CaptureTable):
    """The captures of projections that are joined."""

    def __init__(self, key: SeriesKey, series: JoinedSeries, tables: Sequence[CaptureTable]) -> None:
        super().__init__([], [])
        rows = _common_rows(tables)
        self.parts = [JoinedPart(key, series, tables, rows)]
        self.clocks = self.parts[0].clocks
        self.scales = tables[0].scales[rows[0]]
        self.part_numbers = np.zeros(len(self.clocks), np.intp)
        self.positions = np.arange(len(self.clocks))


class JoinedPart:
    """A `SeriesPart` of joined captures, which are read on demand."""

    def __init__(self, key: SeriesKey, series: JoinedSeries, tables: Sequence[CaptureTable], rows: Sequence[NDArray[np.intp]]) -> None:
        dtypes = {part.dtype for table in tables for part in table.parts}
        if len(dtypes) > 1:
            raise series.fusion.source.wrong(0, f"the captures of `{key}` have several dtypes ({', '.join(sorted(dtypes))})")
        first = tables[0].parts[0]
        self.key, self.dtype, self.attrs, self.variants = key, first.dtype, first.attrs, None
        self.dims: tuple[str, ...] | None = None
        self.coords: dict[str, Coord] = {}
        self._series, self._tables, self._rows = series, tables, rows
        self.clocks = tables[0].clocks[rows[0]]
        self.steps = StepColumn(self.clocks)
        shapes = [self._shape(index) for index in range(len(self.clocks))]
        most = max(map(len, shapes), default=0)
        self.shapes: NDArray[np.int64] = np.array([[*one, *[-1] * (most - len(one))] for one in shapes], np.int64).reshape(
            len(shapes), most
        )
        self.shape = uniform(self.shapes)

    @property
    def orders(self) -> NDArray[np.uint32]:
        """(captures,) of the first projection."""
        return self._tables[0].orders[self._rows[0]]

    def elements(self, first: int, last: int) -> NDArray[Any]:
        """The exact bits of the captures `first` to `last` (exclusive), flat."""
        return np.concatenate([self._value(index).reshape(-1) for index in range(first, last)])

    def _captures(self, index: int) -> Iterator[tuple[tuple[int, ...], Any]]:
        for table, rows in zip(self._tables, self._rows, strict=True):
            capture = table.range(int(rows[index]), 1)
            yield shape_of(capture.shapes[0]), capture

    def _shape(self, index: int) -> tuple[int, ...]:
        shapes = [shape for shape, _ in self._captures(index)]
        axis = self._axis(shapes[0])
        if axis is None:
            return shapes[0]
        for shape in shapes:
            if shape[:axis] + shape[axis + 1 :] != shapes[0][:axis] + shapes[0][axis + 1 :] or shape[axis] % self._series.fusion.groups:
                raise self._unfit(shapes, axis)
        return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])

    def _unfit(self, shapes: Iterable[tuple[int, ...]], axis: int) -> UsageError:
        fusion = self._series.fusion
        groups = f" in {fusion.groups} groups" if fusion.groups > 1 else ""
        found = ", ".join(map(str, shapes))
        return fusion.source.wrong(
            fusion.parts[0].at, f"the captures of `{self.key}` have the shapes {found}, not joined along axis {axis}{groups}"
        )

    def _axis(self, shape: tuple[int, ...]) -> int | None:
        """The axis along which captures are joined; None if they are equal, summed or merged."""
        fusion, root = self._series.fusion, self.key.leaf.partition(".")[0]
        if self._series.merges or root in SAME + SUMMED or not shape:
            return None
        axis = fusion.dim if fusion.dim is not None else -1 if root in ALONG_LAST else 0
        if not -len(shape) <= axis < len(shape):
            at = fusion.source.text.find("dim")
            raise fusion.source.wrong(max(at, 0), f"`{self.key}` has {len(shape)} axes, and no axis {axis}")
        return axis % len(shape)

    def _value(self, index: int) -> NDArray[Any]:
        captures = list(self._captures(index))
        values = [np.asarray(one.bits()).reshape(stored_shape(shape, self.dtype)) for shape, one in captures]
        root = self.key.leaf.partition(".")[0]
        if self._series.merges:
            return np.ascontiguousarray(MERGES[self._series.merges](values)).astype(values[0].dtype)
        if root in SUMMED and values[0].dtype.kind == "f":
            return np.asarray(np.sum([value.astype(np.float64) for value in values], axis=0), values[0].dtype)
        axis = self._axis(captures[0][0])
        return values[0] if axis is None else _alternating(values, axis, self._series.fusion.groups)


def _alternating(values: Values, axis: int, groups: int) -> NDArray[Any]:
    """Values joined along an axis, alternating by piece."""
    cut = [value.reshape(*value.shape[:axis], groups, value.shape[axis] // groups, *value.shape[axis + 1 :]) for value in values]
    joined = np.concatenate(cut, axis=axis + 1)
    return joined.reshape(*joined.shape[:axis], groups * joined.shape[axis + 1], *joined.shape[axis + 2 :])


def _common_rows(tables: Sequence[CaptureTable]) -> list[NDArray[np.intp]]:
    """The rows of each table with clocks that all tables have."""
    identities = [table.identities() for table in tables]
    common = identities[0]
    for one in identities[1:]:
        common = np.intersect1d(common, one)
    return [np.flatnonzero(np.isin(one, common)).astype(np.intp) for one in identities]


def require_modules(fusion: Fusion, names: Iterable[MappedName], series: Iterable[SeriesKey], *, first: bool) -> None:
    """Require that a run has each of some modules.

    Raises:
        UsageError: it lacks one; with its place and the nearest name.
    """
    targets = [key.target for key in series]
    known = {".".join(target.split(".")[:count]) for target in targets for count in range(1, target.count(".") + 2)}
    for name in names:
        if not any(name.matches(target) for target in targets):
            hint = nearest(name.path, sorted(known))
            run = "first" if first else "second"
            raise fusion.source.wrong(name.at, f"`{name.path}` is not a module of the {run} run" + (f"; {hint}" if hint else ""))


def joined(
    sides: tuple[ComparedRun, ComparedRun],
    fusions: Sequence[Fusion],
    transforms: Sequence[Callable[[str], Sequence[Mapping[str, Any]]]],
) -> tuple[ComparedRun, ComparedRun]:
    """Both runs, with the projections joined that the other has in one module.

    Raises:
        UsageError: a fusion names a module that its run does not have.
    """
    for fusion in fusions:
        require_modules(fusion, [fusion.whole], normalised(sides[int(fusion.splits_first)].keys), first=not fusion.splits_first)
    of = ([one for one in fusions if one.splits_first], [one for one in fusions if not one.splits_first])
    ours, theirs = (JoinedRun(side, some, own) if some else side for side, some, own in zip(sides, of, transforms, strict=True))
    return ours, theirs
