"""Comparison of the weights of two runs at the ends of epochs, by digests of parts, or by sums over ranks where layouts differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from probes.proof.comparison.difference import WeightsDifference
from probes.run_directory.launch.whole_weights import EpochTables
from probes.run_directory.manifest import TensorRecord

NONE = "nothing recorded"

Name = tuple[str, str]
Parts = Mapping[int, TensorRecord]


def weights_differences(a: Iterable[EpochTables], b: Iterable[EpochTables]) -> tuple[WeightsDifference, ...]:
    """The tensors that differ at the end of the first epoch of both runs at whose end any does.

    A tensor that lies on the ranks of both runs in the same way is compared rank by rank, any other one as a whole. A tensor that
    only one run has is not compared, nor one that is not known as a whole, because its replicas differ.

    Args:
        a: the tables of the first run, by epoch.
        b: the tables of the second.
    """
    theirs, left = iter(b), next(iter(()), None)
    for ours in a:
        while left is None or left.epoch < ours.epoch:
            left = next(theirs, None)
            if left is None:
                return ()
        if left.epoch == ours.epoch:
            found = _of_epoch(ours, left)
            if found:
                return found
    return ()


def _of_epoch(a: EpochTables, b: EpochTables) -> tuple[WeightsDifference, ...]:
    ours, theirs = _by_name(a), _by_name(b)
    sums = a.whole, b.whole
    found = []
    for name in (name for name in ours if name in theirs):
        one, other = ours[name], theirs[name]
        if _layout(one) == _layout(other):
            rank = next((rank for rank in one if one[rank].digest != other[rank].digest), None)
            if rank is not None:
                texts = one[rank].digest or NONE, other[rank].digest or NONE
                found.append(WeightsDifference(a.epoch, *name, rank if len(one) > 1 else None, *texts))
            continue
        whole = [side[name].sum for side in sums]
        if all(whole) and whole[0] != whole[1]:
            found.append(WeightsDifference(a.epoch, *name, None, *whole))
    return tuple(found)


def _by_name(tables: EpochTables) -> dict[Name, dict[int, TensorRecord]]:
    """The parts of each tensor by rank; a tensor under a second name is left out."""
    found: dict[Name, dict[int, TensorRecord]] = {}
    for rank, models in sorted(tables.ranks.items()):
        for model in models:
            for row in model.tensors:
                if row.same_as is None:
                    found.setdefault((model.name, row.name), {})[rank] = row
    return found


def _layout(parts: Parts) -> object:
    """The ranks that have a part, its place, and what it is of."""
    return {rank: (row.dtype, row.shape, row.sharding) for rank, row in parts.items()}
