"""The files of a run by their names, and the attempts at an epoch: which one counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from probes.errors import UsageError
from probes.run_directory.file_name import is_journal, parse_stem
from probes.run_directory.ledger_lines import LedgerContents, SeriesRow, series_rows

UNSEALED = "unsealed"
STATES = ("complete", "unlisted", "incomplete", UNSEALED)  # the state of an epoch is the last of these that a rank has
ALL_STEPS = 1 << 32  # a clock has 32 bits for a step


class ListedFile(NamedTuple):
    """One capture file or journal, by its name.

    Attributes:
        epoch: number of the epoch.
        rank: rank of the process that wrote it.
        attempt: from 1.
        segment: from 1 if a long epoch was cut; else 0.
        name: name of the file.
        complete: whether the run says so; None for a file that no ledger names.
        captures: how many it holds; None for a file that no ledger names.
        series: what its ledger states of each series; None if it states none.
        remarks: whether its closing record has something to show; True if that is not known.
        before: the first training step of a later attempt that continues the epoch; steps from there on are not read. None if all are.
    """

    epoch: int
    rank: int
    attempt: int
    segment: int
    name: str
    complete: bool | None
    captures: int | None = None
    series: list[SeriesRow] | None = None
    remarks: bool = True
    before: int | None = None

    @property
    def sealed(self) -> bool:
        """Whether the file is HDF5 (and not a journal)."""
        return not is_journal(self.name)


class Attempt(NamedTuple):
    """One try at an epoch.

    Attributes:
        epoch: number of the epoch.
        rank: rank of the process.
        attempt: from 1.
        files: its files, segments in order.
        state: `complete`, `incomplete`, `unsealed` or `unlisted`.
        current: whether the reader shows it.
        captures: how many it holds, if there are several attempts at the epoch.
        before: if a later attempt continues the epoch, the first step of that one: of this attempt, the reader shows only the training
            steps before it. Else None.
    """

    epoch: int
    rank: int
    attempt: int
    files: tuple[str, ...]
    state: str
    current: bool
    captures: int | None = None
    before: int | None = None


def entry(name: str, complete: bool | None = None, captures: int | None = None) -> ListedFile | None:
    """The parts of the name of a capture file; None if it is the name of another file."""
    try:
        stem = parse_stem(name)
    except UsageError:
        return None
    return ListedFile(stem.epoch, stem.rank or 0, stem.attempt, stem.segment, name, complete, captures)


def listed_by(ledger: LedgerContents) -> Iterator[ListedFile]:
    """The files that a ledger lists."""
    for one in ledger.entries:
        found = entry(one.file, one.complete, one.captures)
        if found is not None:
            yield found._replace(series=series_rows(ledger.entries, one), remarks=one.remarks)


class HeldFiles(Protocol):
    """Questions about the files of several attempts at one epoch."""

    def ranks_of(self, attempt: int, epoch: int, *, notes: bool) -> int:
        """The number of ranks of an attempt that must have a file of an epoch: all, or with notes all that had not ended before it."""

    def captures(self, found: ListedFile) -> int:
        """The number of captures of a file."""

    def captures_before(self, found: ListedFile, step: int) -> int:
        """The number of its captures of training steps before one."""

    def first_step(self, found: ListedFile) -> int:
        """The number of the first training step of an attempt, of which this is the first file; not 0 if it continues an epoch."""

    def is_complete(self, found: ListedFile) -> bool:
        """Whether its epoch is complete."""


def ranked(epoch: int, group: Mapping[int, Mapping[int, list[ListedFile]]], held_files: HeldFiles) -> Iterator[Attempt]:
    """The attempts at one epoch, of one rank or of all ranks of a launch.

    Current is the highest, but an incomplete one never hides a complete one, nor one that holds more captures. An attempt that states a
    first step has the training steps before it from an earlier attempt, which is then current too; it is compared by its training steps,
    as its other phases lack what was captured before its first step. No digest covers the notes of ranks that ended before, so an attempt
    that is complete because of them never hides one that is complete on all ranks.

    Args:
        epoch: its number.
        group: the files by rank and attempt, segments in order.
        held_files: reads the content of files; used only if there are several attempts.
    """
    several = len({attempt for tries in group.values() for attempt in tries}) > 1
    held = {
        (rank, attempt): sum(map(held_files.captures, files)) if several else None
        for rank, tries in group.items()
        for attempt, files in tries.items()
    }
    attempts = sorted({attempt for _, attempt in held})

    def whole_attempts(notes: bool) -> list[int]:
        parts = {attempt: [tries[attempt] for tries in group.values() if attempt in tries] for attempt in attempts}
        enough = (attempt for attempt in attempts if len(parts[attempt]) >= held_files.ranks_of(attempt, epoch, notes=notes))
        return [attempt for attempt in enough if all(held_files.is_complete(files[-1]) for files in parts[attempt])]

    whole = (whole_attempts(notes=False) or whole_attempts(notes=True)) if several else []
    best = (whole or attempts)[-1]
    limits: Mapping[int, int] = {}
    if several and not whole:
        joins = _Joins(group, held_files)
        own = {attempt: sum(count or 0 for (_, of), count in held.items() if of == attempt) for attempt in attempts}
        trained = {attempt: joins.training(attempt) for attempt in attempts} if any(joins.before(one).limits for one in attempts) else {}
        best = max(attempts, key=lambda one: (trained.get(one, 0), own[one] + joins.before(one).captures, one))
        limits = joins.before(best).limits
    for rank, tries in sorted(group.items()):
        for attempt, entries in sorted(tries.items()):
            names = tuple(found.name for found in entries)
            current, before = attempt == best or attempt in limits, limits.get(attempt)
            yield Attempt(epoch, rank, attempt, names, _state(entries), current, held[rank, attempt], before)


class _Earlier(NamedTuple):
    """The steps before the first one of an attempt, in earlier attempts.

    Attributes:
        captures: how many captures.
        limits: the attempts, and the step before which the steps of each count.
    """

    captures: int = 0
    limits: Mapping[int, int] = {}


class _Joins:
    """Finds the earlier attempts that hold the steps before the first one of an attempt: those that hold most, and of equal ones the last.

    A checkpoint of an attempt that never reached its step cannot exist, so the attempt with fewer steps is not the one that was continued.
    """

    def __init__(self, group: Mapping[int, Mapping[int, list[ListedFile]]], held_files: HeldFiles) -> None:
        self._held_files = held_files
        self._files: dict[int, dict[int, list[ListedFile]]] = {}
        for rank, tries in group.items():
            for attempt, files in tries.items():
                self._files.setdefault(attempt, {})[rank] = files
        self._found: dict[int, _Earlier] = {}

    def before(self, attempt: int) -> _Earlier:
        """The steps before the first one of an attempt."""
        if attempt not in self._found:
            others = [one for one in self._files if one < attempt and self._files[one].keys() == self._files[attempt].keys()]
            first = self._first(attempt) if others else 0
            found = ((self._with(one, first), one) for one in others if self._first(one) < first)
            self._found[attempt] = max(found, key=lambda one: (one[0].captures, one[1]), default=(_Earlier(), 0))[0]
        return self._found[attempt]

    def training(self, attempt: int) -> int:
        """The number of captures of training steps of an attempt, with those of the attempts that it continues."""
        return self._own(attempt, ALL_STEPS) + self.before(attempt).captures

    def _own(self, attempt: int, step: int) -> int:
        """The number of captures of an attempt of training steps before one."""
        return sum(self._held_files.captures_before(found, step) for files in self._files[attempt].values() for found in files)

    def _with(self, attempt: int, step: int) -> _Earlier:
        """The steps of an attempt before one, with those of the attempts that it continues."""
        own, more = self._own(attempt, step), self.before(attempt)
        return _Earlier(own + more.captures, {**more.limits, attempt: step}) if own else more

    def _first(self, attempt: int) -> int:
        """The first training step of an attempt, if all its ranks agree; else 0."""
        found = {self._held_files.first_step(files[0]) for files in self._files[attempt].values()}
        return found.pop() if len(found) == 1 else 0


def _state(entries: list[ListedFile]) -> str:
    """The state of an attempt; that of an attempt in segments depends on its last segment."""
    if not all(found.sealed for found in entries):
        return UNSEALED
    if any(found.complete is None for found in entries):
        return "unlisted"
    return "complete" if entries[-1].complete and _is_whole(entries) else "incomplete"


def _is_whole(entries: list[ListedFile]) -> bool:
    """Whether all segments are there."""
    return [found.segment for found in entries] in ([0], [*range(1, len(entries) + 1)])
