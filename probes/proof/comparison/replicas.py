"""Whether the replicas of a tensor are the same on all ranks of a launch, and where they first are not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from probes.capture_file.series_part import SeriesPart
from probes.clock import SeriesKey
from probes.proof.finding import Finding
from probes.reader.ranks.full import Coordinate, sharding_of
from probes.run_directory.attempts import ListedFile
from probes.run_directory.listing import Directory

LOCAL = ("increment", "accumulated")  # stages of a gradient at which each rank has its own
TIMES = ["epoch", "step", "microstep", "call", "backward"]


def replica_findings(path: Path) -> Iterator[Finding]:
    """A finding for the first step at which a parameter, its gradient or its state differs between ranks that have the same part of it.

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
    for _, files in sorted(epochs.items()):
        found = [*_of_epoch(directory, files)]
        if found:
            first = min(found, key=lambda one: one.steps or (0, 0))
            yield from sorted((one for one in found if one.steps == first.steps), key=lambda one: str(one.series))
            return


def _of_epoch(directory: Directory, files: list[ListedFile]) -> Iterator[Finding]:
    """The first difference of each series in one epoch."""
    groups: dict[tuple[Any, ...], list[tuple[ListedFile, SeriesPart]]] = defaultdict(list)
    for entry in files:
        for address in directory.addresses(entry.name):
            part = directory.part(entry.name, address)
            if part.attrs.get("hook") == "tensor" and part.attrs.get("stage") not in LOCAL:
                groups[address.key, part.dtype, entry.segment, _same_part(part.attrs)].append((entry, part))
    for (key, *_), parts in groups.items():
        (first, reference), *others = parts
        found = [step for entry, part in others if (step := _first_difference(reference, part)) is not None and entry.rank != first.rank]
        if found:
            step = min(found)
            ranks = [entry.rank for entry, part in others if _first_difference(reference, part) == step]
            yield _finding(key, first, ranks, step)


def _same_part(attrs: Mapping[str, Any]) -> Coordinate | None:
    """What ranks with the same part of a tensor have in common: their coordinates in the dimensions of the mesh that cut it."""
    found = sharding_of(attrs)
    if found is None:
        return None
    return tuple(at for at, placement in zip(found.coordinate, found.placements, strict=True) if placement != "R")


def _first_difference(one: SeriesPart, other: SeriesPart) -> int | None:
    """The first step at which two parts differ, among the clocks that both have; None where they do not."""
    if len(one.clocks) == len(other.clocks) and np.array_equal(one.clocks[TIMES], other.clocks[TIMES]):
        count = len(one.clocks)
        if np.array_equal(one.elements(0, count), other.elements(0, count)):
            return None
        pairs = [(index, index) for index in range(count)]
    else:
        places = {tuple(clock): index for index, clock in enumerate(other.clocks[TIMES].tolist())}
        pairs = [(index, places[tuple(clock)]) for index, clock in enumerate(one.clocks[TIMES].tolist()) if tuple(clock) in places]
    for left, right in pairs:
        if not np.array_equal(one.elements(left, left + 1), other.elements(right, right + 1)):
            return int(one.clocks["step"][left])
    return None


def _finding(key: SeriesKey, first: ListedFile, ranks: list[int], step: int) -> Finding:
    named = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    words = f"`{key.leaf}` of `{key.target}` (probe `{key.probe}`) on {'rank' if len(ranks) == 1 else 'ranks'} {named}"
    message = f"{words} differs from rank {first.rank} for the first time in epoch {first.epoch}, step {step}"
    return Finding("replicas-differ", first.name, message, key, (step, step))
