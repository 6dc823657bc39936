"""Runs for reading: captures by probe, target and leaf."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from probes.capture_file.closing import MissingValue, RuleVerdict, missing_values, rule_verdicts
from probes.capture_file.outline import SeriesOutline, joined
from probes.clock import LOSS_SCALE, SeriesKey
from probes.digest import root_of_segments
from probes.errors import SeriesNotFound, UsageError, nearest
from probes.printable import counted
from probes.reader.lazy_part import LazyPart
from probes.reader.selection import Names, Numbers, Selection
from probes.reader.series_index import SeriesIndex
from probes.run_directory.attempts import ALL_STEPS, Attempt, ListedFile
from probes.run_directory.launch.absent import by_ranks, ended_before, without
from probes.run_directory.launch.whole_weights import weights_at_start, weights_by_epoch
from probes.run_directory.listing import TRAIN, Directory, directory_at
from probes.run_directory.search import meant_run, remote_url

if TYPE_CHECKING:
    from probes.reader.samples.sample_dataset import SampleDataset

USUAL_PHASES = ("train", "eval")


def open(path: str | Path) -> RunReader:  # noqa: A001  # it is called probes.open
    """Open a run for reading.

    Needs no torch, writes nothing, and trusts nothing in the files. Files are opened when something of them is requested.

    Args:
        path: a run directory, a directory of runs at any depth (then the newest is opened, and named on stderr), one file, or the URL of
            a run directory in a store that fsspec reaches, such as `s3://bucket/runs/a`; capture files are downloaded when they are read.

    Returns:
        The run.

    Raises:
        StorageError: there is nothing there, or no run in it.
        FileRefused: the ledger is damaged.
        MissingExtra: a package for the store is not installed.
    """
    url = remote_url(path)
    if url is not None:
        return _opened(url, Selection())
    return RunReader(Directory(meant_run(path)), Selection())


def _opened(place: Path | str, selection: Selection) -> RunReader:
    """A run by its path, or by its URL."""
    return RunReader(directory_at(place), selection)


def closings_of(directory: Directory, files: Iterable[ListedFile]) -> list[dict[str, Any]]:
    """The closing records of files, each with its `rank` if the run has several, and with the step `before` which it counts."""
    found = [(one.rank if has_ranks(directory) else None, one.before, directory.closing(one.name)) for one in files]
    return [{**closing, "rank": rank, "before": before} for rank, before, closing in found if isinstance(closing, dict)]


def has_ranks(directory: Directory) -> bool:
    """Whether several processes wrote a run."""
    return any(world > 1 for world in directory.worlds.values()) or any(one.rank for one in directory.current)


def trigger_events(closings: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events in the closing records of files, in order, of the steps that are read; those of a launch with their rank."""
    found = []
    for closing in closings:
        trigger, rank, before = closing.get("trigger"), closing.get("rank"), closing.get("before")
        events = trigger.get("events") if isinstance(trigger, dict) else None
        of = {} if rank is None else {"rank": rank}
        listed = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
        found += [{**event, **of} for event in listed if before is None or _is_before(event, before)]
    return found


def _is_before(event: Mapping[str, Any], step: int) -> bool:
    """Whether an event is of a training step before one."""
    at = event.get("step")
    return event.get("phase") == TRAIN and isinstance(at, int) and at < step


def missing_of(closings: Iterable[Mapping[str, Any]]) -> list[MissingValue]:
    """The missing captures in the closing records of files; for a launch with their ranks."""
    return [one for closing in closings for one in missing_values(closing.get("accounts"), rank=closing.get("rank"))]


class RunReader(SeriesIndex):
    """A run, or what was selected of it.

    Attributes:
        path: the run directory, or the one file that was opened.
    """

    def __init__(self, directory: Directory, selection: Selection) -> None:
        self.path = directory.path
        super().__init__(selection)
        self._directory = directory
        self._ahead = False

    @property
    def place(self) -> Path | str:
        """The path of the run; of a run in a store its URL."""
        return self.path if self._directory.mirror is None else self._directory.mirror.url

    def read_ahead(self) -> None:
        """Read everything but the values of a file when it is opened first, for who is going to ask for all series of a long run."""
        self._ahead = True

    def opened_again(self) -> RunReader:
        """The same selection of the same run, with files of its own, for another process or thread."""
        return _opened(self.place, self._selection)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the run by its path."""
        return _opened, (self.place, self._selection)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The provenance of the run: the content of `run.json`."""
        return MappingProxyType(self._directory.manifest)

    @property
    def weights(self) -> str | None:
        """Digest of parameters and buffers at the first start, independent of their layout on ranks; None if a rank does not state it."""
        return weights_at_start(self._directory.path) if self._directory.path.is_dir() else None

    @property
    def epoch_weights(self) -> dict[int, str | None]:
        """The same digest at the end of each epoch (`provenance: {weights: epochs}`); None if ranks lack a tensor or differ in it."""
        return weights_by_epoch(self._directory)

    @property
    def spec(self) -> str:
        """The spec of the run, in its original form."""
        return self._directory.spec

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every attempt at every selected epoch, superseded ones included."""
        return tuple(one for one in self._directory.attempts if self._selection.has_file(one.epoch, one.rank))

    @property
    def not_shown(self) -> list[str]:
        """A sentence for each part of an epoch that is in the directory and not in the run as it is read, and for each joined epoch."""
        chosen = self._selection.has_file
        shown = {(one.epoch, one.rank): one for one in self.attempts if one.current}
        found = []
        for one in self.attempts:
            other = shown.get((one.epoch, one.rank))
            if one.before is not None and other is not None:
                found.append(self._joined(one, one.before, other.attempt))
            if other is not None and not one.current and one.captures:
                place = f"epoch {one.epoch}: attempt {one.attempt} ({one.state}, {counted(one.captures, 'capture')}) is not shown"
                found.append(f"{place}, since {self._better(other)}")
        found += [f'"{name}" holds steps that are in no file' for name in self._directory.kept_journals]
        for lacking, sentence in ((self._directory.absent_ranks, without), (self._directory.ended_ranks, ended_before)):
            if lacking:
                selected = {epoch: tuple(rank for rank in ranks if chosen(epoch, rank)) for epoch, ranks in lacking.items()}
                found += [sentence(ranks, epochs) for ranks, epochs in by_ranks(selected).items() if ranks]
        return found

    def _better(self, shown: Attempt) -> str:
        """Why an attempt is shown and not another one."""
        if shown.state == "complete":
            return f"attempt {shown.attempt} is complete"
        place = shown.epoch, shown.rank
        parts = [one for one in self.attempts if one.current and (one.epoch, one.rank) == place]
        if len(parts) == 1:
            return f"attempt {shown.attempt} holds {shown.captures}"
        names = " and ".join(f"attempt {one.attempt}" for one in parts)
        files = [one for one in self._directory.current if (one.epoch, one.rank) == place]
        held = sum(self._directory.captures_before(one, ALL_STEPS if one.before is None else one.before) for one in files)
        return f"{names} hold {counted(held, 'capture')} of training steps"

    def _joined(self, one: Attempt, before: int, last: int) -> str:
        """A sentence for an attempt of which only the steps before those of a later one are shown."""
        parts = (self._directory.part(name, address) for name in one.files for address in self._directory.addresses(name))
        steps = [part.steps.column for part in parts]
        kept, latest = sum(map(len, steps)), max((int(column.max()) for column in steps), default=-1)
        rank = f", rank {one.rank}" if self.has_ranks else ""
        place = f"epoch {one.epoch}{rank}: the training steps before step {before} are of attempt {one.attempt}, the last of them {latest}"
        rest = (one.captures or 0) - kept
        return (
            f"{place}; {counted(rest, 'capture')} of its later steps and other phases {'is' if rest == 1 else 'are'} not shown"
            if rest
            else place
        )

    @property
    def epochs(self) -> list[int]:
        """Numbers of the selected epochs; none if the run has no file of the selection, which is an error of everything that reads it."""
        return sorted({found.epoch for found in self._directory.current if self._selection.has_file(found.epoch, found.rank)})

    @property
    def state(self) -> dict[int, str]:
        """How each epoch ended: `complete`, `incomplete`, `unsealed` (still in a journal) or `unlisted` (in no ledger)."""
        return self._directory.states(self._selection.has_file)

    @property
    def launches(self) -> list[dict[str, Any]]:
        """The starts of a launch, in order: attempt, number of processes, first epoch, and launcher; none for a single process."""
        names = {"attempt", "world", "next_epoch", "launcher", "restart", "started"}
        return [one.model_dump(include=names) for one in self._directory.launches.values()]

    @property
    def captures_roots(self) -> dict[tuple[int, int], str]:
        """The captures root of every sealed epoch by (epoch, rank), as its files state it; of several files, the root of theirs."""
        roots: dict[tuple[int, int], list[str]] = {}
        for found in self._entries:
            if found.sealed:
                roots.setdefault((found.epoch, found.rank), []).append(str(self._directory.file(found.name).attributes["captures_root"]))
        cut = {(found.epoch, found.rank) for found in self._entries if found.segment or found.before is not None}
        return {place: root_of_segments(each) if place in cut else each[0] for place, each in roots.items()}

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of triggers, in order: the value that is not finite or beyond bounds, its place, and what was written."""
        return trigger_events(self._closings)

    @property
    def verdicts(self) -> list[RuleVerdict]:
        """The verdicts of the `rules` of the spec up to the end of the last selected epoch, by rule, the worst series of each first."""
        return rule_verdicts(self._closings)

    @property
    def outlines(self) -> list[SeriesOutline]:
        """A description of each series of the selected epochs, ranks and phases, by name and dtype; read from the ledger if possible.

        Raises:
            UsageError: steps or samples were selected, which a ledger does not know.
        """
        if self._selection.step is not None or self._selection.id is not None:
            raise UsageError("outlines are of whole files; a selection of steps or samples has `.series`")
        found: dict[tuple[SeriesKey, str], list[SeriesOutline]] = {}
        for entry in self._entries:
            for one in self._directory.outlines(entry):
                if self._selection.has_phase(one.key.phase) and self._selection.has_dtype(one.dtype) and one.key.leaf != LOSS_SCALE:
                    found.setdefault(one[:2], []).append(one)
        self._require_phases(key.phase for key, _ in found)
        return [joined(found[name]) for name in sorted(found)]

    @property
    def missing(self) -> list[MissingValue]:
        """The values that were due in the selected epochs and are missing, with reasons; excluded steps of the schedule are not listed."""
        return missing_of(self._closings)

    @property
    def about(self) -> Mapping[str, str]:
        """The run and its captures roots, which a file of another tool stores as the origin of its captures."""
        roots = {f"{epoch}.{rank}" if rank else str(epoch): root for (epoch, rank), root in self.captures_roots.items()}
        return {"probes.run_id": str(self.manifest.get("run_id", "")), "probes.captures_roots": json.dumps(roots)}

    @property
    def _closings(self) -> list[dict[str, Any]]:
        """The closing records of the files that have remarks."""
        return closings_of(self._directory, [found for found in self._entries if found.remarks])

    @property
    def has_ranks(self) -> bool:
        """Whether several processes wrote the run."""
        return has_ranks(self._directory)

    def sel(
        self, *, phase: Names = None, epoch: Numbers = None, step: Numbers = None, rank: Numbers = None, dtype: Names = None
    ) -> RunReader:
        """The run, restricted to some places of the clock.

        Args:
            phase: a name or several; if the run has no capture of it, reading series is an error, except of `train` and `eval`.
            epoch: a number, several, or a slice; a slice goes by value and leaves out its end. If the run has no file of a number, or
                of none in a slice, reading is an error.
            step: the same, but steps without captures are left out.
            rank: as for `epoch`.
            dtype: torch's name of a dtype, or several.

        Raises:
            UsageError: a coordinate is chosen twice, or by something that is not a number.
        """
        return RunReader(self._directory, self._selection.narrowed(phase=phase, epoch=epoch, step=step, rank=rank, dtype=dtype))

    def dataset(self, word: str | Sequence[str], *, axes: int = 1, labels: Mapping[Any, Any] | None = None) -> SampleDataset:
        """The rows of captures as a dataset for a `DataLoader`, with the sample ids that the loop recorded.

        Args:
            word: a probe, a series or a pattern as for `match`, or several; series of one dataset were captured in the same calls.
            axes: how many leading axes of a capture count samples: 1 for (sample, ...), 2 for (sample, token, ...).
            labels: label by sample id, for the key `label` of each item.

        Raises:
            SeriesNotFound: no series fits, or `labels` need sample ids, and the run recorded none.
            RaggedSeries: the series do not belong to the same calls, or rows differ in shape.
            UsageError: a sample has no label.
        """
        from probes.reader.samples.sample_dataset import dataset_of  # few readers of runs train on them

        return dataset_of(self, word, axes, labels)

    def __repr__(self) -> str:
        return "; ".join([f'<RunReader "{self.place}": {counted(len(self.epochs), "epoch")}', *self.not_shown]) + ">"

    def _repr_html_(self) -> str:
        from probes.reader.series_set import listed_html

        states = ", ".join(f"epoch {epoch} {state}" for epoch, state in sorted(self.state.items())[:8])
        more = ", ..." if len(self.state) > 8 else ""
        return listed_html(self.series, "; ".join([f'"{self.place}": {states or "no epochs"}{more}', *self.not_shown]))

    def require_places(self) -> None:
        """Require that the run has a file of each selected epoch and rank.

        Raises:
            SeriesNotFound: it has no file of one; the message says which there are.
        """
        self._selection.require_places(f'"{self.place}"', ((found.epoch, found.rank) for found in self._directory.current))

    @cached_property
    def _entries(self) -> tuple[ListedFile, ...]:
        self.require_places()
        chosen = self._selection
        return tuple(found for found in self._directory.current if chosen.has_file(found.epoch, found.rank))

    @cached_property
    def _keys(self) -> dict[SeriesKey, list[LazyPart]]:
        """Every selected series, and its part in each file."""
        parts: dict[SeriesKey, list[LazyPart]] = {}
        for found in self._entries:
            for address in self._directory.addresses(found.name):
                if self._selection.has_phase(address.key.phase) and address.key.leaf != LOSS_SCALE:
                    part = LazyPart(self._directory, found, address)
                    parts.setdefault(address.key, []).append(part)
                    if self._ahead:
                        part.load()
            if self._ahead:
                self._directory.closing(found.name)
        self._require_phases(key.phase for key in parts)
        return dict(sorted(parts.items()))

    def _require_phases(self, found: Iterable[str]) -> None:
        """Require that the run has each selected phase; a run without captures of the usual two is not odd.

        Raises:
            SeriesNotFound: it has no capture of one.
        """
        selected = self._selection.phase
        odd = {selected} if isinstance(selected, str) else set(selected or ())
        odd -= {*USUAL_PHASES, *found}
        if odd:
            known = sorted({one.key.phase for entry in self._directory.current for one in self._directory.outlines(entry)})
            for phase in sorted(odd.difference(known)):
                there = nearest(phase, known) or f"it has {' and '.join(f'`{one}`' for one in known) or 'none'}"
                raise SeriesNotFound(f"the run has no capture of the phase `{phase}`; {there}")

    @cached_property
    def _scales(self) -> dict[tuple[str, str], list[LazyPart]]:
        """The series of loss scales by probe and phase."""
        found: dict[tuple[str, str], list[LazyPart]] = {}
        for entry in self._entries:
            for address in self._directory.addresses(entry.name):
                if address.key.leaf == LOSS_SCALE:
                    found.setdefault((address.key.probe, address.key.phase), []).append(LazyPart(self._directory, entry, address))
        return found
