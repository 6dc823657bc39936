"""A whole distributed tensor, joined from the captures of all ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.series_part import by_variant
from probes.clock import SeriesKey
from probes.errors import UsageError
from probes.reader.ranks.merged_numbers import MERGES
from probes.reader.selected import Chosen, SelectedCaptures

Coordinate = tuple[int, ...]
Blocks = Mapping[Coordinate, NDArray[Any]]
Merge = Callable[[Sequence[NDArray[Any]]], NDArray[Any]]

WHOLE = "the parts themselves"

_SHARD = re.compile(r"S\((\d+)(?:, (\d+))?\)")
_PARTIAL = re.compile(r"P\((\w+)\)")
REDUCTIONS: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "sum": lambda parts: parts.sum(axis=0),
    "avg": lambda parts: parts.mean(axis=0),
    "max": lambda parts: parts.max(axis=0),
    "min": lambda parts: parts.min(axis=0),
    "product": lambda parts: parts.prod(axis=0),
}


class Sharding(NamedTuple):
    """The layout of a distributed tensor on the ranks, as one rank recorded it.

    Attributes:
        placements: one for each dimension of the mesh: `S(0)`, `S(0, 2)` (strided), `R` or `P(sum)`.
        mesh_shape: sizes of the mesh.
        coordinate: of the rank in it.
        global_shape: of the tensor.
    """

    placements: tuple[str, ...]
    mesh_shape: tuple[int, ...]
    coordinate: Coordinate
    global_shape: tuple[int, ...]


class FullCapture(NamedTuple):
    """A joined distributed tensor.

    Attributes:
        value: the whole; owned by the caller.
        clock: (epoch, step, microstep, call, backward).
    """

    value: NDArray[Any]
    clock: tuple[int, ...]


def sharding_of(attrs: Mapping[str, Any]) -> Sharding | None:
    """The layout of the tensors of a series on the ranks; None for a tensor that is not distributed.

    Raises:
        UsageError: the file says so in a way that cannot be read.
    """
    text = attrs.get("sharding")
    if text is None:
        return None
    try:
        found = json.loads(text) if isinstance(text, str) else dict(text)
        sizes = {name: tuple(map(int, found[name])) for name in ("mesh_shape", "coordinate", "global_shape")}
        result = Sharding(tuple(map(str, found["placements"])), **sizes)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"the attribute `sharding` of a series cannot be read: {error}") from error
    if not len(result.placements) == len(result.mesh_shape) == len(result.coordinate):
        raise UsageError("the attribute `sharding` of a series has another number of placements than its mesh has dimensions")
    return result


def full_captures(key: SeriesKey, chosen: Sequence[Chosen]) -> Iterator[FullCapture]:
    """Join every distributed tensor of a series; needs memory for one.

    Args:
        key: name of the series.
        chosen: the captures of all ranks.

    Raises:
        UsageError: the tensors are not distributed, a rank is missing, or replicas differ.
    """
    places: dict[tuple[int, ...], list[_Block]] = {}
    for one in chosen:
        part = one[0].part()
        for attrs, of in by_variant(part):
            placed = _Placed(sharding_of(attrs), str(attrs.get("merges", "")) if "transforms_of" in attrs else WHOLE)
            for position in np.intersect1d(one[1], of).tolist():
                epoch, step, _, *rest, _ = part.clocks[position].item()
                places.setdefault((epoch, step, *rest), []).append(_Block(one, position, placed))
    blocks = [block for found in places.values() for block in found]
    if not any(block.placed.sharding for block in blocks):
        raise UsageError(f"`{key}` is not distributed over ranks; `.sel(rank=...)` reads the captures of one rank")
    for clock, found in sorted(places.items()):
        yield FullCapture(_whole(key, found, f"`{key}` at epoch {clock[0]}, step {clock[1]}"), clock)


class _Placed(NamedTuple):
    """The layout of captures on the ranks, and the merge of their parts; a tensor that is not distributed has no sharding."""

    sharding: Sharding | None
    merges: str


class _Block(NamedTuple):
    """The capture of one rank at a clock."""

    chosen: Chosen
    position: int
    placed: _Placed


def _whole(key: SeriesKey, blocks: Sequence[_Block], where: str) -> NDArray[Any]:
    """The tensor of one clock. One that is not distributed, as others of its series are, has to be the same on all ranks."""
    shardings = [block.placed.sharding for block in blocks]
    if not any(shardings):
        return put_together({(rank,): _value(key, block) for rank, block in enumerate(blocks)}, ["R"], where)
    first = one_sharding(shardings, where)
    merge = merge_named(key, {block.placed.merges for block in blocks})
    values = {one.coordinate: _value(key, block) for one, block in zip(shardings, blocks, strict=True) if one is not None}
    missing = [at for at in product(*map(range, first.mesh_shape)) if at not in values]
    if missing:
        raise UsageError(f"{where} has no capture of the rank at {missing[0]} of the mesh {first.mesh_shape}")
    return put_together(values, first.placements, where, merge)


def one_sharding(shardings: Iterable[Sharding | None], where: str) -> Sharding:
    """The sharding of all ranks, without their coordinates.

    Raises:
        UsageError: ranks have the tensor in different ways.
    """
    first, *others = shardings
    if first is None or any(one is None or one._replace(coordinate=first.coordinate) != first for one in others):
        raise UsageError(f"{where} is sharded in one way on some ranks and in another way on others; `.sel(rank=...)` reads each")
    return first


def merge_named(key: SeriesKey, kinds: set[str]) -> Merge | None:
    """The function that merges results of transforms on parts; None for the parts themselves.

    Raises:
        UsageError: these results cannot be merged.
    """
    if kinds <= {WHOLE}:
        return None
    kind = kinds.pop() if len(kinds) == 1 else ""
    if kind not in MERGES:
        known = ", ".join(f"`{name}`" for name in MERGES)
        raise UsageError(
            f"`{key}` has the results of transforms on the local parts of a tensor; those of {known} can be merged, where they are the "
            "only transform, over all axes and without `mask`; `gather: full` transforms the whole tensor"
        )
    return MERGES[kind]


def _value(key: SeriesKey, block: _Block) -> NDArray[Any]:
    return SelectedCaptures(key, [(block.chosen[0], np.array([block.position], np.intp))])[0].value


def put_together(blocks: Blocks, placements: Sequence[str], where: str, merge: Merge | None = None) -> NDArray[Any]:
    """Join the blocks of one tensor, one dimension of the mesh after the other.

    A tensor is cut along the first dimension of the mesh first, so the last is put together first; a strided shard was cut last.

    Args:
        blocks: what each rank has, by its coordinate in the mesh.
        placements: one for each dimension of the mesh.
        where: what the tensor is, for messages.
        merge: what makes one of the numbers of shards; by default they are shards themselves, and are joined.

    Raises:
        UsageError: replicas differ, or a placement is not known.
    """
    axes = list(range(len(placements)))
    strided = [axis for axis in axes if (found := _SHARD.fullmatch(placements[axis])) and found[2]]
    left = list(axes)
    for axis in [*reversed(strided), *reversed([axis for axis in axes if axis not in strided])]:
        place = left.index(axis)
        groups: dict[Coordinate, dict[int, NDArray[Any]]] = {}
        for at, block in blocks.items():
            groups.setdefault((*at[:place], *at[place + 1 :]), {})[at[place]] = block
        blocks = {at: _joined([group[index] for index in sorted(group)], placements[axis], where, merge) for at, group in groups.items()}
        left.remove(axis)
    return blocks[()]


def _joined(blocks: Sequence[NDArray[Any]], placement: str, where: str, merge: Merge | None) -> NDArray[Any]:
    shard, partial = _SHARD.fullmatch(placement), _PARTIAL.fullmatch(placement)
    if shard is not None:
        return np.concatenate(blocks, axis=int(shard[1])) if merge is None else merge(blocks)
    if partial is not None and merge is not None:
        raise UsageError(f"{where} has numbers of partial values (`{placement}`), which do not make those of their sum")
    if partial is not None and partial[1] in REDUCTIONS:
        return _reduced(np.stack(blocks), partial[1])
    if placement != "R":
        raise UsageError(f"{where} has the placement `{placement}`, which cannot be put together")
    for index, block in enumerate(blocks):
        if block.shape != blocks[0].shape or block.tobytes() != blocks[0].tobytes():
            raise UsageError(f"{where} is replicated, but its replicas 0 and {index} differ; `.sel(rank=...)` reads each")
    return blocks[0]


def _reduced(parts: NDArray[Any], name: str) -> NDArray[Any]:
    """Reduce partial values; floats in double precision, so that the order of ranks hardly matters."""
    wide = parts.astype(np.complex128 if parts.dtype.kind == "c" else np.float64) if parts.dtype.kind in "fc" else parts
    return REDUCTIONS[name](wide).astype(parts.dtype)
