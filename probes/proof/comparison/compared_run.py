"""One side of a comparison: a run as tables of captures."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.series_name import SeriesAddress
from probes.capture_file.series_part import SeriesPart
from probes.clock import LOSS_SCALE, Clock, SeriesKey
from probes.reader.loss_scales import loss_scales, nonlinear
from probes.run_directory.listing import Directory

Group = tuple[int, int]  # epoch and rank of a file
CLOCK = ["epoch", "step", "microstep", "call", "backward"]


class ComparedRun:
    """A run as a mapping from (epoch, rank) and series to tables of captures."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @cached_property
    def places(self) -> dict[Group, dict[SeriesKey, list[tuple[str, SeriesAddress]]]]:
        """Files and addresses by (epoch, rank) and series."""
        found: dict[Group, dict[SeriesKey, list[tuple[str, SeriesAddress]]]] = {}
        for entry in self._directory.current:
            group = found.setdefault((entry.epoch, entry.rank), {})
            for address in self._directory.addresses(entry.name):
                if address.key.leaf != LOSS_SCALE:
                    group.setdefault(address.key, []).append((entry.name, address))
        return found

    @cached_property
    def _scales(self) -> dict[tuple[int, int, str, str], list[SeriesPart]]:
        """The series of loss scales by epoch, rank, probe and phase."""
        found: dict[tuple[int, int, str, str], list[SeriesPart]] = {}
        for entry in self._directory.current:
            for address in self._directory.addresses(entry.name):
                if address.key.leaf == LOSS_SCALE:
                    place = (entry.epoch, entry.rank, address.key.probe, address.key.phase)
                    found.setdefault(place, []).append(self.part((entry.name, address)))
        return found

    @cached_property
    def keys(self) -> set[SeriesKey]:
        """Every series."""
        return {key for group in self.places.values() for key in group}

    def table(self, group: Group, key: SeriesKey | None) -> CaptureTable:
        """The captures of a series in the files of one epoch and rank."""
        places = self.places.get(group, {}).get(key, []) if key is not None else []
        scales = self._scales.get((*group, key.probe, key.phase), []) if key is not None and key.leaf.startswith("grad") else []
        return CaptureTable([self.part(place) for place in places], scales)

    def part(self, place: tuple[str, SeriesAddress]) -> SeriesPart:
        """A series of a file."""
        return self._directory.part(*place)


class CaptureTable:
    """Captures of one series, over the segments and dtypes that its files have.

    Attributes:
        clocks: (n,) of `CLOCKS`.
        part_numbers: (n,) which of `parts` each capture is in.
        positions: (n,) its position in that part.
        parts: the series in each file.
        scales: (n,) the loss scale of each capture; 1 if nothing scaled it, or where its transforms do not follow the scale.
    """

    def __init__(self, parts: list[SeriesPart], scales: list[SeriesPart]) -> None:
        self.parts = parts
        counts = [len(part.clocks) for part in self.parts]
        self.clocks = np.concatenate([part.clocks for part in self.parts]) if self.parts else np.empty(0, [(name, "<i8") for name in CLOCK])
        self.scales = loss_scales(scales if not nonlinear(scales) else [], self.clocks)
        self.part_numbers = np.repeat(np.arange(len(counts)), counts)
        self.positions = np.concatenate([np.arange(count) for count in counts]) if counts else np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.clocks)

    @cached_property
    def orders(self) -> NDArray[np.uint32]:
        """(n,) as in `SeriesPart.orders`."""
        return np.concatenate([np.empty(0, np.uint32), *(part.orders for part in self.parts)])

    def clock(self, phase: str, row: int) -> Clock:
        """The clock of a capture."""
        epoch, *rest = self.clocks[row].item()
        return Clock(epoch, phase, *rest)

    def identities(self) -> NDArray[Any]:
        """(n,) the identity of each capture across runs: its clock, without parts that follow from others."""
        return np.ascontiguousarray(self.clocks[CLOCK].astype([(name, "<i8") for name in CLOCK]))

    def range(self, row: int, count: int) -> CaptureRange:
        """Ranges of consecutive rows that are also consecutive in one part."""
        return CaptureRange(self, int(self.part_numbers[row]), int(self.positions[row]), count, row)

    def elements(self, part: int, first: int, last: int) -> NDArray[Any]:
        """Exact bits of consecutive captures of a part."""
        return self.parts[part].elements(first, last)


class CaptureRange:
    """Consecutive captures in one part of a table.

    Attributes:
        part: the part.
        first: position of the first capture in the part.
        count: how many captures.
        row: row of the first capture in the table.
    """

    def __init__(self, table: CaptureTable, part_number: int, first: int, count: int, row: int) -> None:
        self._table, self._part_number = table, part_number
        self.part = table.parts[part_number]
        self.first, self.count, self.row = first, count, row

    @property
    def scales(self) -> NDArray[np.float64]:
        """(count,) their loss scales."""
        return self._table.scales[self.row : self.row + self.count]

    @property
    def shapes(self) -> NDArray[np.int64]:
        """(count, rank) as in `SeriesPart.shapes`."""
        return self.part.shapes[self.first : self.first + self.count]

    @property
    def is_whole_part(self) -> bool:
        """Whether the range covers every capture of its part."""
        return self.count == len(self.part.clocks)

    def clock(self, phase: str) -> Clock:
        """The clock of the first capture."""
        return self._table.clock(phase, self.row)

    @property
    def order(self) -> int:
        """`SeriesPart.orders` of the first capture."""
        return int(self._table.orders[self.row])

    def narrowed(self, start: int, count: int) -> CaptureRange:
        """Exact bits of the captures, flat, one after the other."""
        return CaptureRange(self._table, self._part_number, self.first + start, count, self.row + start)

    def bits(self) -> NDArray[Any]:
        """Exact bits of the captures, flat, one after the other."""
        return self._table.elements(self._part_number, self.first, self.first + self.count)
