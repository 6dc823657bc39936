"""The content of a journal in canonical order: series by name, captures by clock."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.series_name import escape, group_name
from probes.clock import SeriesKey
from probes.digest import canonical
from probes.journal.scan import Scan
from probes.signature import DTYPES

VARIABLE = ("epoch", "microstep", "call", "backward", "order", "variant")
UNKNOWN_STEP = np.uint64(2**64 - 1)
_CLOCK = ("epoch", "step", "microstep", "call", "backward")
_ROW = np.dtype([("epoch", "<u4"), ("step", "<u4"), ("microstep", "<i4"), ("call", "<u4"), ("backward", "<u4"), ("rank", "<u4")])

Table = NDArray[Any]


@dataclass(frozen=True)
class JournalSeries:
    """One series of a journal.

    Attributes:
        key: its name.
        dtype: torch's name of the dtype, without prefix.
        suffix: the dtype where an earlier series has the same key, else empty.
        dims: names of the axes if every capture has the same, else None.
        coords: labels by axis name.
        attrs: further attributes, those that all captures share.
        variants: the attributes that captures do not share, one object for each combination of them; empty if all share all.
        variant: (captures,) index into `variants`; 0 if there are none.
        clocks: (captures,) epoch, step, microstep, call, backward and rank, in clock order.
        order: (captures,) how many captures of the same epoch, phase and step were taken before.
        global_steps: (captures,)
        shapes: the distinct shapes.
        shape_of: (captures,) index into `shapes`.
        offsets: (captures,) offsets of the payloads in the journal.
    """

    key: SeriesKey
    dtype: str
    suffix: str
    dims: tuple[str, ...] | None
    coords: dict[str, list[Any]]
    attrs: dict[str, Any]
    variants: list[dict[str, Any]]
    variant: NDArray[np.uint32]
    clocks: Table
    order: NDArray[np.uint32]
    global_steps: NDArray[np.uint64]
    shapes: tuple[tuple[int, ...], ...]
    shape_of: NDArray[np.intp]
    offsets: NDArray[np.int64]

    @property
    def place(self) -> tuple[str, str]:
        """Names of the probe's group and of the series' group in it; series are sorted by it."""
        return escape(self.key.probe), group_name(self.key, self.suffix)

    @property
    def count(self) -> int:
        """The number of captures."""
        return len(self.clocks)

    @cached_property
    def elements(self) -> NDArray[np.int64]:
        """(captures,) elements of each capture; a complex number is one."""
        return np.array([prod(shape) for shape in self.shapes], np.int64)[self.shape_of]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(captures,) bytes of each capture."""
        return self.elements * DTYPES[self.dtype].itemsize

    @cached_property
    def constants(self) -> dict[str, int]:
        """The coordinates of `VARIABLE` that are the same for all captures."""
        columns = {name: self.column(name) for name in VARIABLE if name != "variant" or self.variants}
        return {name: int(column[0]) for name, column in columns.items() if (column == column[0]).all()}

    @property
    def varying(self) -> list[str]:
        """The coordinates of `VARIABLE` that are columns of the file."""
        return [name for name in VARIABLE if name not in self.constants and (name != "variant" or self.variants)]

    def column(self, name: str) -> NDArray[Any]:
        """(captures,) one of `VARIABLE`."""
        if name == "variant":
            return self.variant
        return self.order if name == "order" else self.clocks[name]

    @cached_property
    def layout(self) -> str:
        """`stacked` if all shapes are equal, `concatenated` where only axis 0 differs, else `ragged`."""
        if len(self.shapes) == 1:
            return "stacked"
        rests = {shape[1:] for shape in self.shapes}
        return "concatenated" if len(rests) == 1 and all(self.shapes) else "ragged"

    def shape_table(self) -> NDArray[np.int64]:
        """(captures, rank) sizes, padded with -1 for captures of lower rank."""
        rank = max(map(len, self.shapes))
        rows = [[*shape, *[-1] * (rank - len(shape))] for shape in self.shapes]
        return np.array(rows, np.int64).reshape(len(rows), rank)[self.shape_of]


@dataclass(frozen=True)
class _SeriesRows:
    """The descriptors of one (key, dtype), the captures that have one of them, and when these were taken within their steps."""

    key: SeriesKey
    dtype: str
    descriptors: list[dict[str, Any]]
    rows: Table
    order: NDArray[np.uint32]


def group_by_series(scan: Scan) -> tuple[JournalSeries, ...]:
    """The series of a journal; one without captures is left out.

    Args:
        scan: what the journal holds.

    Returns:
        Series by the names of their groups.
    """
    numbers, keys = _number(scan)
    epochs = np.array([about.get("epoch", scan.head["epoch"]) for about in scan.descriptors], "<u4")
    which = numbers[scan.captures["descriptor"]] if len(numbers) else np.empty(0, np.intp)
    when = epochs[scan.captures["descriptor"]] if len(epochs) else np.empty(0, "<u4")
    captures = scan.captures
    taken = _order(scan, when)
    columns = [captures[name] for name in ("offset", "backward", "call", "microstep", "step")]
    order = np.lexsort([*columns, when, which])
    starts = np.searchsorted(which[order], np.arange(len(keys) + 1))
    drafts = [
        _SeriesRows(key, dtype, members, captures[order[first:last]], taken[order[first:last]])
        for (key, dtype, members), first, last in zip(keys, starts[:-1], starts[1:], strict=True)
        if last > first
    ]
    suffixed = _second_dtypes(drafts, epochs)
    made = [_series(draft, scan, epochs, index in suffixed) for index, draft in enumerate(drafts)]
    return tuple(sorted(made, key=lambda series: series.place))


def _order(scan: Scan, epochs: NDArray[Any]) -> NDArray[np.uint32]:
    """For each capture the number of captures of the same epoch, phase and step before it, in order of execution."""
    phases = [about["key"]["phase"] for about in scan.descriptors]
    numbers = {phase: number for number, phase in enumerate(dict.fromkeys(phases))}
    captures = scan.captures
    phase = np.array([numbers[name] for name in phases], np.intp)[captures["descriptor"]] if phases else np.empty(0, np.intp)
    columns = (captures["step"], phase, epochs)
    sorting = np.lexsort(columns)  # stable, so captures of one step keep their order
    begins = np.ones(len(sorting), bool)
    if len(sorting):
        begins[1:] = np.any([np.diff(column[sorting].astype(np.int64)) != 0 for column in columns], axis=0)
    places = np.arange(len(sorting))
    order = np.empty(len(sorting), np.uint32)
    order[sorting] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return order


def steps_in_order(scan: Scan) -> list[list[Any]]:
    """The committed steps of a journal in their order, as rows of phase, first step and number of consecutive steps."""
    rows: list[list[Any]] = []
    for phase, step in scan.commits[["phase", "step"]].tolist():
        name = scan.phases[phase]
        if rows and rows[-1][0] == name and rows[-1][1] + rows[-1][2] == step:
            rows[-1][2] += 1
        else:
            rows.append([name, step, 1])
    return rows


def _number(scan: Scan) -> tuple[NDArray[np.intp], list[tuple[SeriesKey, str, list[dict[str, Any]]]]]:
    """For each descriptor the number of its (key, dtype), and the descriptors of each."""
    known: dict[tuple[SeriesKey, str], int] = {}
    found: list[tuple[SeriesKey, str, list[dict[str, Any]]]] = []
    numbers = np.empty(len(scan.descriptors), np.intp)
    for index, about in enumerate(scan.descriptors):
        key = SeriesKey(**about["key"])
        number = known.setdefault((key, about["dtype"]), len(known))
        if number == len(found):
            found.append((key, about["dtype"], []))
        found[number][2].append(about)
        numbers[index] = number
    return numbers, found


def _second_dtypes(drafts: list[_SeriesRows], epochs: NDArray[Any]) -> set[int]:
    """The drafts whose key also belongs to a draft with an earlier first capture."""
    by_key: dict[SeriesKey, list[int]] = {}
    for index, draft in enumerate(drafts):
        by_key.setdefault(draft.key, []).append(index)
    later: set[int] = set()
    for indices in by_key.values():
        if len(indices) > 1:
            later.update(sorted(indices, key=lambda index: (*_first(drafts[index], epochs), drafts[index].dtype))[1:])
    return later


def _first(draft: _SeriesRows, epochs: NDArray[Any]) -> tuple[int, ...]:
    row = draft.rows[0]
    return (int(epochs[row["descriptor"]]), *(int(row[name]) for name in _CLOCK[1:]))


def _series(draft: _SeriesRows, scan: Scan, epochs: NDArray[Any], suffixed: bool) -> JournalSeries:
    rows = draft.rows
    shapes, shape_of = _shapes(draft)
    clocks = np.empty(len(rows), _ROW)
    for name in _CLOCK[1:]:
        clocks[name] = rows[name]
    clocks["epoch"] = epochs[rows["descriptor"]]
    clocks["rank"] = scan.head.get("rank", 0)
    first = draft.descriptors[0]
    attrs, variants, variant = _variants(draft)
    dims = {tuple(about["dims"]) if about.get("dims") else None for about in draft.descriptors}
    return JournalSeries(
        key=draft.key,
        dtype=draft.dtype,
        suffix=draft.dtype if suffixed else "",
        dims=dims.pop() if len(dims) == 1 else None,
        coords=first.get("coords") or {},
        attrs=attrs,
        variants=variants,
        variant=variant,
        clocks=clocks,
        order=draft.order,
        global_steps=_global_steps(clocks, scan, draft.key.phase),
        shapes=shapes,
        shape_of=shape_of,
        offsets=rows["offset"].astype(np.int64),
    )


def _variants(draft: _SeriesRows) -> tuple[dict[str, Any], list[dict[str, Any]], NDArray[np.uint32]]:
    """The attributes that all captures share, the combinations of all others in the order of their first captures, and which each has."""
    used, first, inverse = np.unique(draft.rows["descriptor"], return_index=True, return_inverse=True)
    by_id = {about["id"]: about.get("attrs") or {} for about in draft.descriptors}
    every = [by_id[number] for number in used.tolist()]
    names = {name for attrs in every for name in attrs}
    shared = {name for name in names if all(name in attrs and attrs[name] == every[0][name] for attrs in every)}
    if shared == names:
        return every[0], [], np.zeros(len(draft.rows), np.uint32)
    texts = [canonical({name: value for name, value in attrs.items() if name not in shared}) for attrs in every]
    places: dict[bytes, int] = {}
    for index in np.argsort(first).tolist():
        places.setdefault(texts[index], len(places))
    own = np.array([places[text] for text in texts], np.uint32)
    return {name: every[0][name] for name in every[0] if name in shared}, [json.loads(text) for text in places], own[inverse]


def _shapes(draft: _SeriesRows) -> tuple[tuple[tuple[int, ...], ...], NDArray[np.intp]]:
    """The distinct shapes of captures, sorted, and for each capture the index of its shape."""
    used, inverse = np.unique(draft.rows["descriptor"], return_inverse=True)
    by_id = {about["id"]: tuple(about["shape"]) for about in draft.descriptors}
    shapes = tuple(sorted({by_id[number] for number in used.tolist()}))
    places = {shape: index for index, shape in enumerate(shapes)}
    return shapes, np.array([places[by_id[number]] for number in used.tolist()], np.intp)[inverse]


def _global_steps(clocks: Table, scan: Scan, phase: str) -> NDArray[np.uint64]:
    """Steps of the phase since the run began; what a capture of an earlier epoch counts is not known to its journal."""
    start = scan.head.get("global_step_start", {}).get(phase, 0)
    here = clocks["epoch"] == scan.head["epoch"]
    return np.where(here, clocks["step"].astype("<u8") + np.uint64(start), UNKNOWN_STEP)
