"""Values that were due and are missing: as data in a file, and as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

BY_DESIGN = ("recompute", "filtered", "not reached", "no optimizer step")  # reasons that concern the program or the spec
NAMED = 3
RANKS_NAMED = 8


class MissingValue(NamedTuple):
    """The missing captures of one value in one epoch, for one reason.

    Attributes:
        probe: name of the probe.
        target: path of the module, parameter or buffer; empty for the root.
        leaf: path of the value.
        reason: from the closed list of the accounts.
        times: how often.
        first: what was found the first time, and when; empty if the reason says all.
        rank: the process of a launch; None if there is one process.
    """

    probe: str
    target: str
    leaf: str
    reason: str
    times: int
    first: str = ""
    rank: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return self._asdict()


def missing_values(accounts: object, without: Iterable[str] = BY_DESIGN, rank: int | None = None) -> list[MissingValue]:
    """The missing values in the `accounts` of a closing record; empty if they cannot be read.

    Args:
        accounts: the counters of every binding, as plain data.
        without: reasons that do not count.
        rank: the process that says so, of several.
    """
    rows = accounts if isinstance(accounts, list) else []
    found = (one for row in rows if isinstance(row, Mapping) for one in _of(row))
    return [one._replace(rank=rank) for one in found if one.reason not in without]


def _of(account: Mapping[str, Any]) -> Iterator[MissingValue]:
    place = (str(account.get("probe", "")), str(account.get("target", "")))
    known = set()
    for leaf, reason, count, first in _rows(account.get("lost")):
        known.add(reason)
        yield MissingValue(*place, leaf, reason, count, first)
    skipped = account.get("skipped")
    for reason, count in skipped.items() if isinstance(skipped, Mapping) else ():
        if reason not in known and isinstance(count, int):
            yield MissingValue(*place, str(account.get("value", "")), str(reason), count)


def _rows(lost: object) -> Iterator[tuple[str, str, int, str]]:
    for row in lost if isinstance(lost, list) else ():
        if isinstance(row, list) and len(row) == 4 and isinstance(row[2], int):
            yield str(row[0]), str(row[1]), row[2], str(row[3])


def in_words(values: Iterable[MissingValue], *, brief: bool = False) -> list[str]:
    """One line for each probe, value and reason, with the targets.

    Args:
        values: what is missing, perhaps of several epochs.
        brief: leave out the name of the probe, and what was found.
    """
    groups: dict[tuple[str, str, str], list[MissingValue]] = {}
    for one in values:
        groups.setdefault((one.probe, one.leaf, one.reason), []).append(one)
    if brief:
        return [_line(leaf, reason, group) for (_, leaf, reason), group in groups.items()]
    return [f"{probe}: {_line(leaf, reason, group)}{_detail(group)}" for (probe, leaf, reason), group in groups.items()]


def _detail(group: list[MissingValue]) -> str:
    first = next((one.first for one in group if one.first), "")
    return f" ({first})" if first else ""


def _line(leaf: str, reason: str, group: list[MissingValue]) -> str:
    targets = list(dict.fromkeys(f"`{one.target}`" if one.target else "the model" for one in group))
    more = f" and {len(targets) - NAMED} more" if len(targets) > NAMED else ""
    count = sum(one.times for one in group)
    times = "once" if count == 1 else f"{count} times"
    return f"`{leaf}` of {', '.join(targets[:NAMED])}{more}: {reason} {times}{_on({one.rank for one in group if one.rank is not None})}"


def _on(ranks: Collection[int]) -> str:
    """The ranks, if there are several."""
    named = ", ".join(map(str, sorted(ranks)[:RANKS_NAMED]))
    more = f" and {len(ranks) - RANKS_NAMED} more" if len(ranks) > RANKS_NAMED else ""
    return f" on {'rank' if len(ranks) == 1 else 'ranks'} {named}{more}" if ranks else ""
