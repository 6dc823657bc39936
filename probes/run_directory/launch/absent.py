"""Sentences on ranks that have no file of an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MOST_NAMED = 8


def by_reason(
    lacking: Mapping[int, Sequence[int]], attempts: Mapping[int, int], ended: Mapping[tuple[int, int], int]
) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """The ranks that lack an epoch, by epoch: those that must have it, and those that had ended by themselves before.

    Args:
        lacking: all of them.
        attempts: the attempt that counts, by epoch.
        ended: the last epoch of ranks that ended by themselves, by attempt and rank.
    """
    parts: tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]] = ({}, {})
    for epoch, ranks in lacking.items():
        before = {rank for rank in ranks if ended.get((attempts[epoch], rank), epoch) < epoch}
        for part, chosen in zip(parts, ([rank for rank in ranks if rank not in before], sorted(before)), strict=True):
            if chosen:
                part[epoch] = tuple(chosen)
    return parts


def by_ranks(absent: Mapping[int, tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    """The epochs that the same ranks have no file of, by these ranks.

    Args:
        absent: the ranks by epoch.
    """
    found: dict[tuple[int, ...], list[int]] = {}
    for epoch, ranks in sorted(absent.items()):
        found.setdefault(ranks, []).append(epoch)
    return found


def without(ranks: Sequence[int], epochs: Sequence[int]) -> str:
    """The sentence on some ranks and epochs."""
    of = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {some(ranks)} have"
    return f"{of} no file of {'epoch' if len(epochs) == 1 else 'epochs'} {some(epochs)}"


def ended_before(ranks: Sequence[int], epochs: Sequence[int]) -> str:
    """The sentence on some ranks that ended by themselves before some epochs."""
    return f"{without(ranks, epochs)}, as {'its program' if len(ranks) == 1 else 'their programs'} ended before"


def some(numbers: Sequence[int]) -> str:
    """The first few numbers, and the count of the others."""
    more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    return ", ".join(map(str, numbers[:MOST_NAMED])) + more
