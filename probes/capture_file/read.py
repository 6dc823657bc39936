"""Series of a sealed file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype
from probes.capture_file.hdf5_read import Hdf5Group, open_file
from probes.capture_file.hdf5_storage import StoredArray
from probes.capture_file.series_name import SeriesAddress, escape, parse_group
from probes.capture_file.series_part import CLOCKS, UNKNOWN_ORDER, StepColumn, StepIds, Variants, sizes, uniform
from probes.clock import SeriesKey
from probes.digest import FILE_ROOT, file_root
from probes.errors import FileRefused
from probes.plain_file import plain_json
from probes.signature import DTYPES, Coord

LABELS = "labels_"
OWN = frozenset(
    [
        "probe",
        "target",
        "leaf",
        "phase",
        "torch_dtype",
        "layout",
        "dims",
        "epoch",
        "microstep",
        "call",
        "backward",
        "order",
        "variant",
        "variants",
    ]
)
FOR_OTHERS = frozenset(["signal", "axes", "dimensions", "NX_class", "digest", "described"])  # read by other readers and by `verify` only


class SealedFile:
    """A sealed file of captures.

    Attributes:
        path: where it is.
        root: its root group.
        sealed: that it is not a journal.
    """

    sealed = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = open_file(path)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the root: run, epoch, attempt, completeness, roots."""
        return self.root.attributes()

    @cached_property
    def addresses(self) -> dict[SeriesAddress, tuple[Hdf5Group, str]]:
        """The addresses of all series of the file, each with the group of its probe and its name there; no series is opened."""
        if "captures" not in self.root:  # an epoch in which nothing was captured
            return {}
        captures = self.root.group("captures")
        probes = {probe: captures.group(probe) for probe in captures.names()}
        return {parse_group(probe, name): (group, name) for probe, group in probes.items() for name in group.names()}

    def group(self, address: SeriesAddress) -> Hdf5Group:
        """The group of a series."""
        probe, name = self.addresses[address]
        return probe.group(name)

    def part(self, address: SeriesAddress) -> SealedPart:
        """One series of the file."""
        group = self.group(address)
        return self.part_of(address, group, group.attributes(without=FOR_OTHERS))

    def part_of(self, address: SeriesAddress, group: Hdf5Group, attributes: dict[str, Any]) -> SealedPart:
        """One series of the file, of whose group the attributes were read."""
        with group.checking():
            return SealedPart(address, group, attributes, self._rank)

    @cached_property
    def _rank(self) -> int:
        return int(self.root.attribute("rank") or 0)

    def ids(self, phase: str) -> StepIds | None:
        """The sample ids of the steps of a phase, if the run has them."""
        name = escape(phase)
        if "steps" not in self.root or name not in (steps := self.root.group("steps")):
            return None
        group = steps.group(name)
        ids = group.array("sample_id").read()
        with group.checking():
            ids = np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids
        return StepIds(group.array("step").read(), group.array("row_size").read(), ids)

    def rest(self, payloads: Iterable[range]) -> str:
        """The digest of the file without the payloads at these places, as `file_root` of a file states it.

        Raises:
            FileRefused: the file has no place for it.
        """
        own = self.root.array(FILE_ROOT).extent
        return file_root(self.root.file_bytes.descriptor, [own, *payloads])

    def document(self, name: str) -> Any:
        """A JSON text of the file: `manifest`, `closing`, `gaps`, `order` or `resolved`, with a check of its type.

        Raises:
            FileRefused: the text is not JSON, or not of the type that it has in a capture file.
        """
        if name == "order" and name not in self.root:  # a file of release 0.1
            return None
        try:
            found = plain_json(self.root.text(name))
        except FileRefused:
            raise
        except ValueError as error:
            raise FileRefused("damaged", f'`{name}` of "{self.path}" is not JSON: {error}') from error
        if not (ROWS[name](found) if name in ROWS else isinstance(found, dict | str) or found is None):
            raise FileRefused("damaged", f'`{name}` of "{self.path}" has another type than in a capture file')
        return {} if name in ("manifest", "closing") and not isinstance(found, dict) else found

    def spec(self) -> str:
        """The spec, as it was written."""
        return self.root.text("spec")


def are_gaps(rows: Any) -> bool:
    """Whether these are rows of probe, target, leaf, phase, reason and count."""
    return isinstance(rows, list) and all(
        isinstance(row, list) and len(row) == 6 and all(isinstance(one, str) for one in row[:5]) and isinstance(row[5], int) for row in rows
    )


def are_steps(rows: Any) -> bool:
    """Whether these are rows of phase, first step and number of steps."""
    return isinstance(rows, list) and all(
        isinstance(row, list)
        and len(row) == 3
        and isinstance(row[0], str)
        and all(type(one) is int and 0 <= one < 1 << 32 for one in row[1:])
        for row in rows
    )


ROWS: dict[str, Callable[[Any], bool]] = {"gaps": are_gaps, "order": are_steps}


class SealedPart:
    """One series in a sealed file; see `Part`."""

    def __init__(self, address: SeriesAddress, group: Hdf5Group, attributes: dict[str, Any], rank: int) -> None:
        self.key = address.key
        self._group = group
        self._names = set(group.names())
        self._attributes = attributes
        if tuple(self._attributes.get(name) for name in SeriesKey._fields) != self.key:
            raise FileRefused("series-renamed", f'"{group.name}" has attributes of another series than its name')
        self.dtype = self._dtype()
        self._values = self._array("values")
        if self._values.dtype != bits_dtype(self.dtype):
            raise FileRefused("dtype-changed", f'"{group.name}" holds `{self._values.dtype}`, which is not `{self.dtype}`')
        self.clocks = self._clocks(rank)
        self.steps = StepColumn(self.clocks)
        self.shapes = self._shapes()
        self.shape = uniform(self.shapes)
        self.dims = self._dims()
        self.coords = self._coords()
        described = {name: value for name, value in attributes.items() if name not in OWN and not name.startswith(LABELS)}
        self.attrs = {name: value for name, value in described.items() if name not in FOR_OTHERS}
        self._starts = np.concatenate(([0], np.cumsum(sizes(self.shapes, self.dtype))))
        if self._starts[-1] != prod(self._values.shape):
            raise self._damaged(f"holds {prod(self._values.shape)} elements where its captures have {self._starts[-1]}")

    @property
    def extent(self) -> range:
        """The place of the payloads in the file, if they are in one piece."""
        return self._values.extent

    def elements(self, first: int, last: int) -> NDArray[Any]:
        """The exact bits of the captures `first` to `last` (exclusive), flat; fresh memory."""
        return self._values.elements(int(self._starts[first]), int(self._starts[last]))

    def pieces(self, first: int, last: int, most: int) -> Iterator[NDArray[Any]]:
        """The same in pieces of at most so many elements, as one capture may be larger than memory; a compressed one is one piece."""
        start, stop = int(self._starts[first]), int(self._starts[last])
        step = most if self.extent else stop - start  # the chunks of a capture are decoded together
        for at in range(start, stop, step or 1):
            yield self._values.elements(at, min(at + step, stop))

    @cached_property
    def orders(self) -> NDArray[np.uint32]:
        """(captures,) how many captures of the same step were taken before; `UNKNOWN_ORDER` in files of release 0.1."""
        if "order" in self._names:
            return self._column("order", len(self.clocks)).astype(np.uint32)
        stated = self._attributes.get("order")
        known = isinstance(stated, int) and 0 <= stated < UNKNOWN_ORDER
        return np.full(len(self.clocks), stated if known else UNKNOWN_ORDER, np.uint32)

    @cached_property
    def variants(self) -> Variants | None:
        """The attributes that not all captures share; files of release 0.1 do not have them."""
        text = self._group.text("variants") if "variants" in self._names else self._attributes.get("variants")
        if text is None:
            return None
        found = plain_json(text) if isinstance(text, str | bytes) else None
        if not (isinstance(found, list) and found and all(isinstance(one, dict) for one in found)):
            raise self._damaged("has `variants` that are not objects")
        of = self._column("variant", len(self.clocks))
        if len(of) and not 0 <= of.min() <= of.max() < len(found):
            raise self._damaged(f"has a capture of variant {of.max()}, and {len(found)} variants")
        return Variants(tuple(found), of.astype(np.uint32))

    @cached_property
    def block_digests(self) -> NDArray[np.uint8]:
        """(blocks, 32) the digests of the blocks, as the file states them."""
        found = self._array("block_digest")
        if found.dtype != np.uint8 or found.shape[1:] != (32,):
            raise self._damaged("has block digests that are not 32 bytes")
        return found.read()

    def _dtype(self) -> str:
        dtype = self._attributes.get("torch_dtype")
        if dtype not in DTYPES:
            raise FileRefused("newer-format", f'"{self._group.name}" holds the dtype "{dtype}", which this release does not know')
        return str(dtype)

    def _clocks(self, rank: int) -> NDArray[Any]:
        steps = self._array("step").read()
        clocks = np.zeros(len(steps), CLOCKS)
        clocks["step"] = steps
        clocks["rank"] = rank
        for name in ("epoch", "global_step", "microstep", "call", "backward"):
            if name in self._names:
                clocks[name] = self._column(name, len(steps))
            else:
                clocks[name] = self._attributes[name]
        return clocks

    def _shapes(self) -> NDArray[np.int64]:
        shape = self._values.shape
        if DTYPES[self.dtype].lanes > 1:
            shape = shape[:-1]
        layout, count = self._attributes.get("layout"), len(self.clocks)
        if layout == "stacked":
            if shape[0] != count:
                raise self._damaged(f"has {shape[0]} stacked captures and {count} clocks")
            return np.broadcast_to(np.array(shape[1:], np.int64), (count, len(shape) - 1))
        if layout == "concatenated":
            rows = self._column("row_size", count)
            if (rows < 0).any():
                raise self._damaged("has a capture with a negative number of rows")
            rest = np.broadcast_to(np.array(shape[1:], np.int64), (count, len(shape) - 1))
            return np.concatenate((rows[:, None].astype(np.int64), rest), axis=1)
        if layout == "ragged":
            return self._column("shape", count).astype(np.int64)
        raise self._damaged(f'has the layout "{layout}"')

    def _dims(self) -> tuple[str, ...] | None:
        found = self._attributes.get("dims")
        return tuple(found) if found and len(found) == self.shapes.shape[1] else None

    def _coords(self) -> dict[str, Coord]:
        """Labels by axis; those that are too large for an attribute are JSON in a string dataset with that name."""
        found = {name: value for name, value in self._attributes.items() if name.startswith(LABELS)}
        found |= {name: json.loads(self._group.text(name)) for name in self._names if name.startswith(LABELS)}
        return {name.removeprefix(LABELS): tuple(labels) for name, labels in found.items()}

    def _column(self, name: str, count: int) -> NDArray[Any]:
        column = self._array(name).read()
        if len(column) != count:
            raise self._damaged(f"has {len(column)} values in `{name}` for {count} captures")
        return column

    def _array(self, name: str) -> StoredArray:
        if name not in self._names:
            raise self._damaged(f"has no `{name}`")
        return self._group.array(name)

    def _damaged(self, what: str) -> FileRefused:
        return FileRefused("damaged", f'"{self._group.name}" {what}')
