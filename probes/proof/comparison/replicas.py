"""Comparison of the replicas of a tensor on all ranks of a launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.series_part import SeriesPart, by_variant
from probes.clock import SeriesKey
from probes.proof.finding import Finding
from probes.reader.ranks.full import Coordinate, sharding_of
from probes.run_directory.attempts import ListedFile
from probes.run_directory.launch.whole_weights import EpochTables, epoch_tables
from probes.run_directory.listing import Directory
from probes.run_directory.manifest import TensorRecord

LOCAL = ("increment", "accumulated")  # stages of a gradient at which each rank has its own gradient
MOST_NAMED = 16
TIMES = ["epoch", "step", "microstep", "call", "backward"]


@dataclass(frozen=True, eq=False)
class _Replica:
    """The captures of a rank that have one sharding."""

    entry: ListedFile
    part: SeriesPart
    positions: NDArray[np.intp]

    @property
    def is_all(self) -> bool:
        """Whether these are all captures of the part."""
        return len(self.positions) == len(self.part.clocks)


def replica_findings(path: Path) -> Iterator[Finding]:
    """A finding for the first step at which a parameter, its gradient or its state differs between ranks that have the same part of it.

    Where nothing captured differs in an epoch, the weights that ranks state at its end are compared.

    A parameter that is not distributed is the same on every rank; of a DTensor those ranks have the same part whose coordinates differ
    only in replicated dimensions of the mesh.

    Args:
        path: the run directory.

    Raises:
        FileRefused: a file is damaged.
    """
    directory = Directory(path)
    epochs: dict[int, list[ListedFile]] = defaultdict(list)
    for entry in directory.current:
        epochs[entry.epoch].append(entry)
    tables = {one.epoch: one for one in epoch_tables(directory)}
    for epoch, files in sorted(epochs.items()):
        found = [*_of_epoch(directory, files)]
        if found:
            first = min(found, key=lambda one: one.steps or (0, 0))
            yield from sorted((one for one in found if one.steps == first.steps), key=lambda one: str(one.series))
            return
        at_end = [*_at_end(tables[epoch])] if epoch in tables else []
        yield from at_end[:MOST_NAMED]
        if at_end:
            return


def _of_epoch(directory: Directory, files: list[ListedFile]) -> Iterator[Finding]:
    """The first difference of each series in one epoch."""
    groups: dict[tuple[Any, ...], list[_Replica]] = defaultdict(list)
    for entry in files:
        for address in directory.addresses(entry.name):
            part = directory.part(entry.name, address)
            if part.attrs.get("hook") == "tensor" and part.attrs.get("stage") not in LOCAL:
                for attrs, positions in by_variant(part):
                    groups[address.key, part.dtype, entry.attempt, entry.segment, _same_part(attrs)].append(
                        _Replica(entry, part, positions)
                    )
    for (key, *_), parts in groups.items():
        reference, *others = parts
        steps = {one: _first_difference(reference, one) for one in others if one.entry.rank != reference.entry.rank}
        found = [step for step in steps.values() if step is not None]
        if found:
            ranks = [one.entry.rank for one, step in steps.items() if step == min(found)]
            yield _finding(key, reference.entry, ranks, min(found))


def _at_end(tables: EpochTables) -> Iterator[Finding]:
    """The parameters that differ at the end of an epoch; buffers, such as those of batch normalization, are each rank's own."""
    parts: dict[tuple[str, str, object], dict[int, str | None]] = defaultdict(dict)
    for rank, models in sorted(tables.ranks.items()):
        for table in models:
            for row in table.tensors:
                if row.role == "parameter" and row.same_as is None:
                    parts[table.name, row.name, _same_part_of_row(row)][rank] = row.digest
    for (model, name, _), digests in parts.items():
        first = next(iter(digests))
        ranks = [rank for rank, digest in digests.items() if digest != digests[first]]
        if ranks:
            words = f"parameter `{f'{model}:' if model else ''}{name}` on {_named(ranks)} differs from rank {first}"
            message = f"{words} at the end of epoch {tables.epoch}, and nothing captured differs before"
            yield Finding("replicas-differ", tables.files[first], message)


def _same_part_of_row(row: TensorRecord) -> object:
    """The coordinates that ranks with the same part of a tensor share, as a table states them."""
    found = row.sharding
    if found is None:
        return None
    return tuple(at for at, placement in zip(found.coordinate, found.placements, strict=False) if placement != "R")


def _named(ranks: list[int]) -> str:
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks[:8]))}{more}"


def _same_part(attrs: Mapping[str, Any]) -> Coordinate | None:
    """The coordinates that ranks with the same part of a tensor share: those in the dimensions of the mesh that shard it."""
    found = sharding_of(attrs)
    if found is None:
        return None
    return tuple(at for at, placement in zip(found.coordinate, found.placements, strict=True) if placement != "R")


def _first_difference(one: _Replica, other: _Replica) -> int | None:
    """The first step at which two ranks differ, among the clocks that both have; None if they do not."""
    left, right = one.part, other.part
    if one.is_all and other.is_all and np.array_equal(left.clocks[TIMES], right.clocks[TIMES]):
        count = len(left.clocks)
        if np.array_equal(left.elements(0, count), right.elements(0, count)):
            return None
    places = {tuple(right.clocks[index][TIMES].tolist()): index for index in other.positions.tolist()}
    for index in one.positions.tolist():
        at = places.get(tuple(left.clocks[index][TIMES].tolist()))
        if at is not None and not np.array_equal(left.elements(index, index + 1), right.elements(at, at + 1)):
            return int(left.clocks["step"][index])
    return None


def _finding(key: SeriesKey, first: ListedFile, ranks: list[int], step: int) -> Finding:
    words = f"`{key.leaf}` of `{key.target}` (probe `{key.probe}`) on {_named(ranks)}"
    message = f"{words} differs from rank {first.rank} for the first time in epoch {first.epoch}, step {step}"
    return Finding("replicas-differ", first.name, message, key, (step, step))
