"""The facts on one run for a report; problems of an open, damaged or empty run become sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from probes.capture_file.closing import missing_in_words, verdicts_in_words
from probes.clock import SeriesKey
from probes.errors import ProbesError
from probes.proof.finding import Verdict
from probes.proof.verify import verify
from probes.reader.run import RunReader
from probes.reader.run import open as open_run
from probes.reader.selection import Numbers
from probes.reader.series import Series
from probes.report.figures import evenly
from probes.report.plot_data import PlotData

UNREADABLE = (ProbesError, OSError)
MOST_RANKS = 32  # in the drawings of a page, unless they are named


@dataclass
class RunContent:
    """One run.

    Attributes:
        name: the run as it was named.
        verdict: of its verification.
        manifest: its provenance; empty if it cannot be read.
        spec: its spec as it was written.
        state: how each epoch ended.
        captures: of each series.
        nbytes: of all captures, uncompressed.
        events: what set off triggers.
        rules: lines on the rules of the spec that were broken.
        remarks: sentences on what is missing, open or damaged.
        plots: plain data of the drawings.
    """

    name: str
    verdict: Verdict
    manifest: Mapping[str, Any] = field(default_factory=dict)
    spec: str = ""
    state: dict[int, str] = field(default_factory=dict)
    captures: dict[SeriesKey, int] = field(default_factory=dict)
    nbytes: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    plots: dict[str, Any] = field(default_factory=dict)


def read(path: Path, share: float, rank: Numbers = None) -> RunContent:
    """Read a run, and verify it.

    Args:
        path: a run directory, a directory of runs (then its newest one), or one file.
        share: which part of the report its drawings may fill.
        rank: ranks whose captures are shown; by default all.

    Raises:
        StorageError: there is no run.
        SeriesNotFound: the run has no file of one of these ranks.
    """
    run = open_run(path)
    found = RunContent(str(path), verify(run.path))
    try:
        found.manifest, found.spec = run.manifest, run.spec
        run = run.sel(rank=rank) if rank is not None else run
        found.state = run.state
    except UNREADABLE as error:
        found.remarks.append(f"The run cannot be read: {error}")
        return found
    run.require_places()
    _fill(found, _readable(run, found), share, every_rank=rank is None)
    return found


def _readable(run: RunReader, found: RunContent) -> RunReader:
    """The run, or those of its epochs that can be opened; the others get a remark."""
    run.read_ahead()
    if _failure(run) is None:
        return run
    failures = {epoch: _failure(run.sel(epoch=epoch)) for epoch in run.epochs}
    found.remarks += [f"Epoch {epoch} cannot be read: {failure}" for epoch, failure in failures.items() if failure is not None]
    return run.sel(epoch=[epoch for epoch, failure in failures.items() if failure is None])


def _failure(run: RunReader) -> Exception | None:
    """The reason why the series of a run cannot be opened, if there is one."""
    try:
        for one in run.series:
            len(one)
    except UNREADABLE as error:
        return error
    return None


def _fill(found: RunContent, run: RunReader, share: float, every_rank: bool) -> None:
    """Read everything from the readable epochs."""
    series = run.series
    found.captures = {one.key: len(one) for one in series}
    found.nbytes = sum(one.nbytes for every in series for one in every.by_dtype())
    found.events = run.events
    found.rules = verdicts_in_words(run.verdicts, ranks=run.has_ranks)
    found.remarks += [*_states(found.state), *run.not_shown, *(f"missing: {line}" for line in missing_in_words(run.missing))]
    if not series:
        found.remarks.append("The run has no captures.")
    try:
        found.plots = PlotData(_some_ranks(run, series, found) if every_rank else run, share).data()
    except UNREADABLE as error:
        found.remarks.append(f"The captures cannot be drawn: {error}")


def _some_ranks(run: RunReader, series: Sequence[Series], found: RunContent) -> RunReader:
    """The run; of many ranks some, which the page has room for."""
    ranks = sorted({rank for one in series for rank in np.unique(one.clocks["rank"]).tolist()})
    if len(ranks) <= MOST_RANKS:
        return run
    found.remarks.append(f"The drawings show {MOST_RANKS} of {len(ranks)} ranks, evenly spaced; `--rank` selects others.")
    return run.sel(rank=[ranks[at] for at in evenly(len(ranks), MOST_RANKS)])


def _states(state: Mapping[int, str]) -> list[str]:
    """A sentence for each way in which epochs are incomplete."""
    said = {
        "unsealed": "still open, or the run was killed: their last steps are in a journal, and `probes recover` seals them",
        "incomplete": "not complete: the run stopped before their end",
        "unlisted": "in no ledger, so only their own digests protect them",
    }
    found = []
    for name, why in said.items():
        epochs = [str(epoch) for epoch, one in sorted(state.items()) if one == name]
        if epochs:
            found.append(f"Epochs {', '.join(epochs)} are {why}.")
    return found
