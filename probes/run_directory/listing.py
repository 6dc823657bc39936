"""The files of a run directory, and which of them count."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import count
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from probes.capture_file.outline import SeriesOutline
from probes.capture_file.series_name import SeriesAddress
from probes.clock import SeriesKey
from probes.errors import FileRefused, StorageError
from probes.host import most_descriptors
from probes.plain_file import plain_object, read_plain, regular
from probes.run_directory.attempts import STATES, Attempt, ListedFile, entry, listed_by, ranked
from probes.run_directory.file_name import KEPT, is_journal
from probes.run_directory.launch.absent import by_reason
from probes.run_directory.launch.end_note import Ended, ended_ranks
from probes.run_directory.launch.launch_file import LaunchRecord, launches
from probes.run_directory.ledger_lines import SeriesRow, read_ledgers, require_sound
from probes.run_directory.manifest import check_shape, newer_format

if TYPE_CHECKING:
    from probes.capture_file.read import SealedFile
    from probes.capture_file.series_part import SeriesPart, StepIds
    from probes.capture_file.unsealed import UnsealedFile

OPEN_SHARE = 4  # of this many descriptors that the process may have, one is for a file of a run; of some systems it may have 256
OPEN_FILES = 512  # in any case, since HDF5 keeps caches for each
KEPT_PARTS = 256

TRAIN = "train"
PLACE = ("epoch", "attempt", "rank", "segment")


class Mirror(Protocol):
    """Downloads the files of a run in a remote store."""

    @property
    def url(self) -> str:
        """The run directory in the store."""

    def fetch(self, name: str) -> None:
        """Download a capture file that is not here."""


class OpenFiles:
    """The files of all runs that this process has open; those that were used last stay open.

    Threads read different runs, so a file is closed by forgetting it: who is reading it keeps it open until then.
    """

    def __init__(self) -> None:
        self._directories: dict[int, ref[Directory]] = {}
        self._lock = RLock()
        self._uses = count()

    def opened(self, directory: Directory) -> None:
        """Close the files whose last use is longest ago, if a run has opened one too many."""
        with self._lock:
            self._directories[id(directory)] = ref(directory)
            there = {key: found for key, place in self._directories.items() if (found := place()) is not None}
            self._directories = {key: ref(found) for key, found in there.items()}
            most = max(1, min(OPEN_FILES, most_descriptors() // OPEN_SHARE))
            last = sorted((use, key, name) for key, found in there.items() for name, (use, _) in list(found.open_files.items()))
            for _, key, name in last[: max(0, len(last) - most)]:
                there[key].close(name)

    def use(self) -> int:
        """A number that is larger than those of earlier uses."""
        return next(self._uses)


_open_files = OpenFiles()  # descriptors are counted by process


class Directory:
    """The files of one run, opened when they are touched; `OpenFiles` limits how many stay open.

    Args:
        has_file: whether the file of an epoch and a rank is meant; by default every one.

    Attributes:
        path: the run directory, or the one file that was opened.
        mirror: where the files come from, if the run is in a remote store.
        open_files: by name the number of the last use, and the file.
    """

    def __init__(self, path: Path, mirror: Mirror | None = None, has_file: Callable[[int, int], bool] | None = None) -> None:
        self.path = path
        self._has_file = has_file
        self.mirror = mirror
        self._root = path if path.is_dir() else path.parent
        self.open_files: dict[str, tuple[int, SealedFile | UnsealedFile]] = {}
        self._closings: dict[str, Any] = {}
        self._train_steps: dict[str, Counter[int]] = {}
        self._addresses: dict[str, tuple[SeriesAddress, ...]] = {}
        self._parts: dict[tuple[str, SeriesAddress], SeriesPart] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the files by their path; open files do not leave this process."""
        return directory_at, (self.path if self.mirror is None else self.mirror.url, self._has_file)

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every attempt at every epoch, superseded ones included."""
        tries: dict[tuple[int, int], dict[int, dict[int, list[ListedFile]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        for found in sorted(self._entries()):
            group = 0 if self.worlds else found.rank  # the ranks of a launch count together
            tries[found.epoch, group][found.rank][found.attempt].append(found)
        return tuple(attempt for epoch, group in sorted(tries) for attempt in ranked(epoch, tries[epoch, group], self))

    @cached_property
    def launches(self) -> dict[int, LaunchRecord]:
        """The starts of a launch by attempt; empty for a run of one process."""
        return launches(self.path) if self.path.is_dir() else {}

    @cached_property
    def worlds(self) -> dict[int, int]:
        """The number of processes by attempt with a file, where launch files say it."""
        there = {found.attempt for found in self._entries()}
        return {attempt: one.world for attempt, one in self.launches.items() if attempt in there}

    @property
    def absent_ranks(self) -> dict[int, tuple[int, ...]]:
        """The ranks without a file of an epoch that they must have, by epoch."""
        return self._without_file[0]

    @property
    def ended_ranks(self) -> dict[int, tuple[int, ...]]:
        """The ranks without a file of an epoch because they had ended by themselves before, by epoch."""
        return self._without_file[1]

    @cached_property
    def _without_file(self) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
        there: dict[int, set[int]] = defaultdict(set)
        worlds: dict[int, tuple[int, int]] = {}
        for attempt in self.attempts:
            if attempt.current:
                there[attempt.epoch].add(attempt.rank)
                worlds[attempt.epoch] = max(worlds.get(attempt.epoch, (1, 0)), (self._world(attempt), attempt.attempt))
        every = {epoch: [rank for rank in range(world) if rank not in there[epoch]] for epoch, (world, _) in worlds.items()}
        lacking = {epoch: ranks for epoch, ranks in every.items() if ranks}
        return by_reason(lacking, {epoch: attempt for epoch, (_, attempt) in worlds.items()}, self._ended) if lacking else ({}, {})

    @cached_property
    def _ended(self) -> Ended:
        return ended_ranks(self.path, (one for ledger in read_ledgers(self.path) for one in ledger.entries))

    def ranks_of(self, attempt: int, epoch: int, *, notes: bool) -> int:
        """The number of ranks of an attempt that must have a file of an epoch: all, or with notes all that had not ended before it."""
        world = self.worlds.get(attempt, 1)
        return world if world == 1 or not notes else world - sum(one == attempt and last < epoch for (one, _), last in self._ended.items())

    def _world(self, attempt: Attempt) -> int:
        """The number of processes of an attempt; runs of releases without launch files state it in their manifest."""
        if self.worlds or not self.path.is_dir() or ".rank-" not in attempt.files[0]:
            return self.worlds.get(attempt.attempt, 1)
        environment = self.manifest.get("environment")
        world = environment.get("world") if isinstance(environment, dict) else None
        return min(world, 1 << 20) if isinstance(world, int) else 1

    def states(self, chosen: Callable[[int, int], bool] = lambda epoch, rank: True) -> dict[int, str]:
        """How each epoch ended, over all ranks that must have it.

        Args:
            chosen: whether an epoch and a rank are asked about.
        """
        states: dict[int, str] = {}
        found = [(one.epoch, one.rank, one.state) for one in self.attempts if one.current]
        found += [(epoch, rank, "incomplete") for epoch, ranks in self.absent_ranks.items() for rank in ranks]
        for epoch, rank, state in found:
            if chosen(epoch, rank):
                states[epoch] = max(states.get(epoch, "complete"), state, key=STATES.index)
        return states

    @cached_property
    def current(self) -> tuple[ListedFile, ...]:
        """The files that count, by epoch, rank, attempt and segment; of one with `before`, ledgers do not know what is read of it."""
        names = {name for attempt in self.attempts if attempt.current for name in attempt.files}
        chosen = self._has_file or (lambda epoch, rank: True)
        found = sorted(one for one in self._entries() if one.name in names and chosen(one.epoch, one.rank))
        return tuple(one._replace(before=self._before[one.name], series=None) if one.name in self._before else one for one in found)

    @cached_property
    def _before(self) -> dict[str, int]:
        """The files of which only the training steps before one count, and that step."""
        return {name: one.before for one in self.attempts if one.before is not None for name in one.files}

    def file(self, name: str) -> SealedFile | UnsealedFile:
        """An open file of the run."""
        _, found = self.open_files.get(name, (0, None))
        if found is not None:
            self.open_files[name] = _open_files.use(), found
            return found
        path = self._root / name
        if self.mirror is not None:
            self.mirror.fetch(name)
        found = self._opened(path)
        self.open_files[name] = _open_files.use(), found
        _open_files.opened(self)
        return found

    def close(self, name: str) -> None:
        """Forget an open file; it is opened again when it is touched."""
        self.open_files.pop(name, None)
        for place in [place for place in list(self._parts) if place[0] == name]:
            self._parts.pop(place, None)

    def _opened(self, path: Path) -> SealedFile | UnsealedFile:
        """Open a file of the run; epoch, attempt and rank in it must agree with its name.

        Raises:
            FileRefused: it is a link, which a run never has, or states another place.
        """
        from probes.capture_file.read import SealedFile  # importing h5py takes longer than listing a run
        from probes.capture_file.unsealed import UnsealedFile

        if is_journal(path.name):
            try:
                return UnsealedFile(self._regular(path))
            except StorageError:
                path = path.with_suffix(".h5")  # it was sealed after the names were read
                if not path.exists():
                    raise
        found = SealedFile(self._regular(path))
        named = entry(path.name)
        if self.path.is_dir() and named is not None:
            wrong = [name for name in PLACE if found.attributes.get(name, 0) != getattr(named, name)]
            if wrong:
                raise FileRefused("files-swapped", f'"{path}" states another {" and ".join(wrong)} than its name')
        return found

    def _regular(self, path: Path) -> Path:
        """The path, unless it is a link; a file that a user names directly may be reached through links."""
        if self.path.is_dir():
            os.close(regular(path))
        return path

    def addresses(self, name: str) -> tuple[SeriesAddress, ...]:
        """The series of a file, as far as it counts; none if a journal has no committed step yet."""
        if name not in self._addresses:
            found = self._all_addresses(name)
            if name in self._before:
                found = tuple(one for one in found if one.key.phase == TRAIN and len(self.part(name, one).clocks))
            self._addresses[name] = found
        return self._addresses[name]

    def _all_addresses(self, name: str) -> tuple[SeriesAddress, ...]:
        """The series of a file."""
        try:
            return tuple(self.file(name).addresses)
        except FileRefused as refused:
            if refused.code != "journal-empty":
                raise
            return ()

    def closing(self, name: str) -> Any:
        """The closing record of a file."""
        if name not in self._closings:
            self._closings[name] = self.file(name).document("closing")
        return self._closings[name]

    def outlines(self, found: ListedFile) -> tuple[SeriesOutline, ...]:
        """A description of each series of a file: from its ledger, else from the file itself."""
        if found.series is None:
            from probes.capture_file.series_part import outline_of_part  # NumPy, as below h5py

            return tuple(outline_of_part(self.part(found.name, address)) for address in self.addresses(found.name))
        return tuple(_outline(row, found.epoch) for row in found.series)

    def ids(self, name: str, phase: str) -> StepIds | None:
        """The sample ids of the steps of a phase of a file, as far as the file counts, if the run has them."""
        found = self.file(name).ids(phase)
        if found is None or name not in self._before:
            return found
        from probes.run_directory.earlier_steps import ids_before  # NumPy, as below h5py

        return ids_before(found, self._before[name])

    def part(self, name: str, address: SeriesAddress) -> SeriesPart:
        """A series of a file, as far as the file counts."""
        file = self.file(name)
        found = self._parts.get((name, address))
        if found is None:
            if len(self._parts) >= KEPT_PARTS:
                self._parts.clear()
            found = file.part(address)
            if name in self._before:
                from probes.run_directory.earlier_steps import EarlierSteps  # NumPy, as below h5py

                found = EarlierSteps(found, file.attributes["epoch"], self._before[name])
            self._parts[name, address] = found
        return found

    @property
    def kept_journals(self) -> list[str]:
        """Names of journals that were sealed only in part."""
        return sorted(path.name for path in self.path.glob(f"epoch-*{KEPT}")) if self.path.is_dir() else []

    def is_complete(self, found: ListedFile) -> bool:
        """Whether an epoch is complete; read from the file if no ledger names it."""
        if found.complete is None:
            return bool(self._all_addresses(found.name)) and bool(self.file(found.name).attributes["complete"])
        return found.complete

    def captures(self, found: ListedFile) -> int:
        """The number of captures of a file; read from the file if no ledger names it."""
        if found.captures is not None:
            return found.captures
        return sum(len(self.file(found.name).part(address).clocks) for address in self._all_addresses(found.name))

    def captures_before(self, found: ListedFile, step: int) -> int:
        """The number of captures of training steps before one."""
        if found.name not in self._train_steps:
            self._train_steps[found.name] = self._count_by_step(found.name)
        return sum(count for at, count in self._train_steps[found.name].items() if at < step)

    def _count_by_step(self, name: str) -> Counter[int]:
        """The number of captures of each training step of a file."""
        counts: Counter[int] = Counter()
        try:
            for address in self._all_addresses(name):
                if address.key.phase == TRAIN:
                    counts.update(self.file(name).part(address).steps.column.tolist())
        except (FileRefused, StorageError) as error:
            _require_lost(error)
            return Counter()
        return counts

    def first_step(self, found: ListedFile) -> int:
        """The number of the first training step of an attempt, of which this is the first file."""
        try:
            stated = self.file(found.name).attributes.get("first_step")
        except (FileRefused, StorageError) as error:
            _require_lost(error)
            return 0
        return stated if isinstance(stated, int) else 0

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The provenance of the run: `run.json`, or the copy in its first file."""
        path = self._root / "run.json"
        if self.path.is_dir() and path.is_file():
            return _manifest(path)
        found = dict(self.file(self.current[0].name).document("manifest") or {}) if self.current else {}
        return _of_its_shape(found, self._root / self.current[0].name) if found else {}

    @cached_property
    def spec(self) -> str:
        """The spec as it was written: `spec.yaml`, or the copy in the first file."""
        path = self._root / "spec.yaml"
        if self.path.is_dir() and path.is_file():
            return read_plain(path).decode(errors="replace")
        return self.file(self.current[0].name).spec() if self.current else ""

    def _entries(self) -> Iterable[ListedFile]:
        return self._listed if self.path.is_dir() else self._single

    @cached_property
    def _single(self) -> tuple[ListedFile, ...]:
        file = self.file(self.path.name)
        found = file.attributes
        epoch, rank, attempt, segment = (int(found.get(name) or 0) for name in ("epoch", "rank", "attempt", "segment"))
        complete = bool(found.get("complete")) if file.sealed else None
        return (ListedFile(epoch, rank, attempt, segment, self.path.name, complete),)

    @cached_property
    def _listed(self) -> tuple[ListedFile, ...]:
        """The files that the ledgers list, and journals that are newer; without both, every file."""
        # The names first: a journal that is sealed between the two reads is then found twice, and never missed.
        names = sorted(path.name for path in self._root.glob("epoch-*"))
        ledgers = read_ledgers(self._root)
        require_sound(ledgers, self._root)
        sealed = [found for ledger in ledgers for found in listed_by(ledger)]
        done = {found[:4] for found in sealed}
        there = [found for name in names if (found := entry(name)) is not None]
        journals = [found for found in there if not found.sealed and found[:4] not in done]
        return tuple(sealed + journals) if ledgers or journals else tuple(there)


def directory_at(place: Path | str, has_file: Callable[[int, int], bool] | None = None) -> Directory:
    """A run directory by its path, or by its URL."""
    if isinstance(place, Path):
        return Directory(place, has_file=has_file)
    from probes.run_directory.remote.mirror import RemoteMirror  # most runs are on this machine

    mirror = RemoteMirror(place)
    return Directory(mirror.path, mirror, has_file)


def _require_lost(error: FileRefused | StorageError) -> None:
    """Require that a file is damaged or missing: nothing of it can be shown, and `verify` names it.

    Raises:
        StorageError: the file may be there; without it, a run would be read as if it had other steps.
    """
    if not isinstance(error, FileRefused) and not isinstance(error.__cause__, FileNotFoundError):
        raise error


def _manifest(path: Path) -> dict[str, Any]:
    try:
        return _of_its_shape(plain_object(read_plain(path)), path)
    except FileRefused:
        raise
    except ValueError as error:
        raise FileRefused("bad-manifest", f'"{path}" is not a JSON object: {error}') from error


def _of_its_shape(manifest: dict[str, Any], path: Path) -> dict[str, Any]:
    newer = newer_format(manifest)
    if newer:
        raise FileRefused("newer-format", f'the manifest of "{path}" has {newer}')
    try:
        check_shape(manifest)
    except ValueError as error:
        raise FileRefused("bad-manifest", f'the manifest of "{path}" cannot be used: {error}') from error
    return manifest


def _outline(row: SeriesRow, epoch: int) -> SeriesOutline:
    shape, dims = None if row.shape is None else tuple(row.shape), None if row.dims is None else tuple(row.dims)
    key = SeriesKey(row.probe, row.target, row.leaf, row.phase)
    return SeriesOutline(key, row.dtype, row.captures, shape, dims, row.bytes, (epoch,) if row.epochs is None else tuple(row.epochs))
