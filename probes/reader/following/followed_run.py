"""A run that another process is writing: its captures so far, and its speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from probes.capture_file.closing import MissingValue, RuleVerdict, missing_in_words, rule_verdicts
from probes.clock import LOSS_SCALE, SeriesKey
from probes.errors import FileRefused, ProbesError, StorageError
from probes.host import free_bytes
from probes.journal.tail import CommittedStep, JournalTail
from probes.reader.following.followed_series import KEPT, LARGEST, FollowedSeries, followed, nbytes_of
from probes.reader.following.writer_life import ALIVE, DEAD, NOBODY, UNKNOWN, life_of
from probes.reader.run import RunReader, closings_of, missing_of, trigger_events
from probes.reader.selection import Selection
from probes.run_directory.attempts import UNSEALED
from probes.run_directory.file_name import Stem, ledger_files, parse_stem
from probes.run_directory.ledger_lines import LedgerContents, breaches, head_of, read_ledger
from probes.run_directory.listing import Directory
from probes.run_directory.search import is_run

WINDOW = 10.0  # seconds over which the rate of captures is measured
LAST_FILES = 8  # number of last epochs whose files are read for events and verdicts
MOST_FILLED = 64  # limit of series whose numbers are read from sealed files


@dataclass
class RunProgress:
    """The state of a run at one moment.

    Attributes:
        run: the run directory.
        state: `waiting` (there is no run yet), `running`, `elsewhere` (its process is on another machine), `killed` (its process has ended,
            and some journals are not sealed), `finished`, `empty` (it has ended and has captured nothing), `damaged`.
        writer: the process that writes it.
        steps: the last step with captures of every phase and rank of the open epoch, the newest first.
        sealed: number of sealed epochs, by how they ended.
        captures: captures so far, of sealed files and open journals.
        nbytes: bytes on disk of both.
        per_second: captures a second in the last seconds; None before there are two looks.
        bytes_per_second: the same in bytes of captures.
        free: bytes that are left on the disk.
        series: every series, those of training loops first.
        events: what fired triggers.
        verdicts: what the rules found, as far as epochs have ended.
        missing: values that are due and missing, in words.
        problems: what cannot be read, in words.
        head: the ledger head; of several ranks that of the first.
    """

    run: str
    state: str = "waiting"
    writer: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    sealed: dict[str, int] = field(default_factory=dict)
    captures: int = 0
    nbytes: int = 0
    per_second: float | None = None
    bytes_per_second: float | None = None
    free: int | None = None
    series: list[FollowedSeries] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    verdicts: list[RuleVerdict] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    head: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the run is over."""
        return self.state not in ("waiting", "running", "elsewhere")

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = {**asdict(self, dict_factory=dict), "series": [_series_data(one) for one in self.series]}
        return plain | {"verdicts": [one.as_dict() for one in self.verdicts]}


def _series_data(one: FollowedSeries) -> dict[str, Any]:
    numbers = [number if np.isfinite(number) else str(number) for number in one.numbers]
    return {"series": one.word, "shape": one.shape, "label": one.label, "numbers": numbers}


class FollowedRun:
    """A run that is followed; every `look` reads what was appended since the one before.

    Nothing is locked, nothing is written, and the numbers of large captures are not read.

    Args:
        path: the run directory, which may come into being later.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._series: dict[SeriesKey, FollowedSeries] = {}
        self._tails: dict[str, JournalTail] = {}
        self._refused: dict[str, str] = {}
        self._counts: dict[Stem, list[int]] = {}  # captures and bytes of every journal so far
        self._steps: dict[tuple[int, str], dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []
        self._gaps: dict[tuple[str, ...], int] = {}
        self._ledgers: dict[Path, tuple[tuple[int, int], LedgerContents]] = {}
        self._ended: tuple[list[dict[str, Any]], list[RuleVerdict], list[str]] = ([], [], [])
        self._sealed = -1
        self._filled = False
        self._samples: deque[tuple[float, int, int]] = deque()

    def look(self) -> RunProgress:
        """The current state."""
        found = RunProgress(str(self.path))
        if not self.path.is_dir() or not is_run(self.path):
            found.free = _free(self.path)
            found.state = "waiting" if life_of(self.path)[0] in (NOBODY, ALIVE, UNKNOWN) else "killed"
            return found
        if not self._filled:
            self._filled = True
            self._fill()
        life, found.writer = life_of(self.path)  # before the files, so that nothing of a run that ends meanwhile is missed
        self._follow(found)
        self._read_ledgers(found)
        self._rates(found)
        found.free = _free(self.path)
        found.state = self._state(life, found)
        found.series = sorted(self._series.values(), key=lambda one: (not one.key.leaf.startswith("loop"), one.word))
        found.steps = sorted(self._steps.values(), key=lambda one: -one["at"])
        return found

    def _state(self, life: str, found: RunProgress) -> str:
        if life in (ALIVE, UNKNOWN):
            return "running" if life == ALIVE else "elsewhere"
        open_journals = any(tail.has_name() for tail in self._tails.values())
        if found.problems:
            return "damaged"
        if life == DEAD or open_journals:
            return "killed"
        return "finished" if found.captures or found.sealed else "empty"

    def _follow(self, found: RunProgress) -> None:
        for path in sorted(self.path.glob("epoch-*.journal")):
            self._open(path)
        for name, tail in list(self._tails.items()):
            try:
                self._take(tail, list(tail.read()))
            except ProbesError as error:
                self._refused[name] = str(error)
            if not tail.has_name() or name in self._refused:
                del self._tails[name]
        self._refused = {name: text for name, text in self._refused.items() if (self.path / name).exists()}
        found.problems += self._refused.values()

    def _open(self, path: Path) -> None:
        """Begin to follow a journal."""
        if path.name in self._refused or path.name in self._tails:
            return
        try:
            stem = parse_stem(path.name)
            self._tails[path.name] = JournalTail(path)
        except FileRefused as refused:
            if refused.code != "journal-empty":
                self._refused[path.name] = str(refused)
            return
        except ProbesError:  # renamed or sealed after the names were read
            return
        self._counts[stem] = [0, 0]
        newest = max((step["epoch"] for step in self._steps.values()), default=-1)
        if stem.epoch > newest:
            self._steps.clear()

    def _take(self, tail: JournalTail, steps: list[CommittedStep]) -> None:
        """Count the captures of steps, and record a number of each of the last captures of every series."""
        if not steps:
            return
        stem = parse_stem(tail.path.name)
        rows = np.concatenate([step.captures for step in steps])
        sizes = np.array([nbytes_of(about) for about in tail.descriptors], np.int64)
        count = self._counts[stem]
        count[0] += len(rows)
        count[1] += int(sizes[rows["descriptor"]].sum()) if len(rows) else 0
        order = np.argsort(rows["descriptor"], kind="stable")
        numbers, starts = np.unique(rows["descriptor"][order], return_index=True)
        groups = np.split(rows["offset"][order], starts[1:]) if len(rows) else []
        for number, places in zip(numbers.tolist(), groups, strict=True):
            about, size = tail.descriptors[number], int(sizes[number])
            key = SeriesKey(**about["key"])
            if key.leaf != LOSS_SCALE:
                series = self._series.setdefault(key, FollowedSeries(key))
                for place in places[-KEPT:].tolist():
                    series.take(about, tail.bytes_at(place, size) if size <= LARGEST else None)
        for step in steps:
            self._note(stem, step)

    def _note(self, stem: Stem, step: CommittedStep) -> None:
        """Record the annex of a step, and the place in the run."""
        self._events += [event for event in _listed(step.annex.get("events")) if isinstance(event, dict)]
        for *place, times in step.annex.get("gaps", ()):
            self._gaps[tuple(place)] = self._gaps.get(tuple(place), 0) + times
        rank = stem.rank or 0
        self._steps[rank, step.phase] = {
            "epoch": stem.epoch,
            "phase": step.phase,
            "step": step.step,
            "global_step": step.global_step,
            "rank": rank,
            "at": monotonic(),
        }

    def _read_ledgers(self, found: RunProgress) -> None:
        ledgers = [self._ledger(path) for path in ledger_files(self.path)]
        more = "`probes verify` lists everything that is wrong"
        found.problems += [f'"{self.path / one.file}": {one.message}; {more}' for one in breaches(ledgers)]
        lines = [entry for ledger in ledgers for entry in ledger.entries]
        done = {(entry.epoch, entry.attempt, entry.segment or 0, entry.rank) for entry in lines}
        for entry in lines:
            state = "complete" if entry.complete else "incomplete"
            found.sealed[state] = found.sealed.get(state, 0) + 1
        waiting = [count for stem, count in self._counts.items() if (stem.epoch, stem.attempt, stem.segment, stem.rank or 0) not in done]
        found.captures = sum(entry.captures for entry in lines) + sum(count[0] for count in waiting)
        found.nbytes = sum(entry.bytes for entry in lines) + sum(count[1] for count in waiting)
        found.head = head_of(ledgers)
        if len(lines) != self._sealed and not found.problems:
            self._sealed = len(lines)
            self._read_ends(found)
        ended = {_place(event) for event in self._ended[0]}
        found.events = [*self._ended[0], *(event for event in self._events if _place(event) not in ended)]
        found.verdicts = self._ended[1]
        gaps = [MissingValue(probe, target, leaf, reason, count) for (probe, target, leaf, _, reason), count in self._gaps.items()]
        found.missing = list(dict.fromkeys([*self._ended[2], *missing_in_words(gaps)]))

    def _ledger(self, path: Path) -> LedgerContents:
        """A ledger; read again only if it has changed."""
        status = path.stat()
        mark = status.st_size, status.st_mtime_ns
        if path not in self._ledgers or self._ledgers[path][0] != mark:
            self._ledgers[path] = mark, read_ledger(path)
        return self._ledgers[path][1]

    def _read_ends(self, found: RunProgress) -> None:
        """Read the ends of the last epochs from their files."""
        try:
            directory = Directory(self.path)
            closings = closings_of(directory, [one for one in directory.current if one.sealed][-LAST_FILES:])
        except (FileRefused, StorageError, OSError) as error:
            found.problems.append(str(error))
            return
        self._ended = trigger_events(closings), rule_verdicts(closings), missing_in_words(missing_of(closings))

    def _fill(self) -> None:
        """Read the last numbers of some series from files that were sealed before the first look."""
        try:
            run = RunReader(Directory(self.path), Selection())
            sealed = [epoch for epoch, state in run.state.items() if state != UNSEALED][-LAST_FILES:]
            for many in run.sel(epoch=sealed).series[:MOST_FILLED] if sealed else ():
                if len(many):
                    self._series[many.key] = followed(many)
        except (FileRefused, StorageError, OSError):
            return  # reading the ledgers and the ends of the files reports it

    def _rates(self, found: RunProgress) -> None:
        now = monotonic()
        captures, nbytes = (sum(count[place] for count in self._counts.values()) for place in (0, 1))
        self._samples.append((now, captures, nbytes))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW:
            self._samples.popleft()
        first = self._samples[0]
        if now > first[0]:
            found.per_second = (captures - first[1]) / (now - first[0])
            found.bytes_per_second = (nbytes - first[2]) / (now - first[0])


def _place(event: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(event.get(name) for name in ("probe", "target", "leaf", "epoch", "phase", "step", "rank"))


def _listed(found: Any) -> Iterator[Any]:
    return iter(found) if isinstance(found, list) else iter(())


def _free(path: Path) -> int | None:
    with suppress(OSError, StopIteration):
        return free_bytes(path.absolute())
    return None
