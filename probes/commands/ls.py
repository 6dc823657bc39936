"""`probes ls`: list the series of a run, or all runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from probes.capture_file.closing import event_line, missing_in_words, verdicts_in_words
from probes.capture_file.outline import SeriesOutline
from probes.capture_file.series_name import SeriesAddress
from probes.commands.options.values import RUN_PATH, numbers, once
from probes.commands.rendering.table import table
from probes.errors import ProbesError, StorageError, UsageError
from probes.printable import one_line, spans
from probes.reader.run import RunReader
from probes.reader.run import open as open_run
from probes.run_directory.search import run_directories
from probes.signature import Signature, size

RUNS = Path("runs")


@click.command()
@click.argument("run", required=False, type=RUN_PATH)
@click.option("--epoch", multiple=True, callback=numbers, help="Select epochs: 3 or 0,5 or 10:20.")
@click.option("--phase", multiple=True, callback=once, help="Select a phase.")
@click.option("--rank", multiple=True, callback=numbers, help="Select ranks: 3 or 0,5 or 10:20.")
@click.option("--attempts", is_flag=True, help="List the attempts of each epoch instead of the series.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def ls(context: click.Context, run: Path | None, epoch: Any, phase: str | None, rank: Any, attempts: bool, as_json: bool) -> None:
    """List the series of RUN; without RUN, list the runs in ./runs."""
    given = [
        f"--{name}" for name, one in (("epoch", epoch), ("phase", phase), ("rank", rank), ("attempts", attempts or None)) if one is not None
    ]
    if run is None:
        if given:
            raise UsageError(f"`{given[0]}` is for one run; name it: `probes ls RUN {given[0]}`, and `probes ls` lists the runs in ./runs")
        found, failed = _runs()
        click.echo(json.dumps(found, indent=2) if as_json else _runs_text(found) if found or not failed else "no run can be read")
        for error in failed:
            click.echo(f"error: {one_line(str(error))}", err=True)
        context.exit(max((error.exit_code for error in failed), default=0))
    if attempts and phase is not None:
        raise UsageError("`--attempts` lists files, which hold all phases; leave out `--phase`")
    opened = open_run(run).sel(epoch=epoch, phase=phase, rank=rank)
    opened.require_places()
    opened.read_ahead()
    about = _run(opened)
    if attempts:
        about["attempts"] = [attempt._asdict() for attempt in opened.attempts]
        text = _attempts_text(about["attempts"])
    else:
        listed = opened.outlines  # read first, so that a file that must be opened is opened once
        about["not_shown"] = opened.not_shown
        about["events"] = opened.events
        about["verdicts"] = [one.as_dict() for one in opened.verdicts]
        about["missing"] = [one.as_dict() for one in opened.missing]
        several = {one.key for one, after in pairwise(listed) if one.key == after.key}  # they are sorted
        about["series"] = [_series(one, one.dtype if one.key in several else "") for one in listed]
        text = _series_text(about["series"]) or f"nothing was captured{' in this selection' if given else ''}"
    about["launches"] = opened.launches
    about["edits"] = _edits(opened)
    events = [event_line(event, ranks=opened.has_ranks) for event in about.get("events", ())]
    before = [*_launches(about["launches"]), *_edits_text(about["edits"]), *about.get("not_shown", ()), *events]
    before += [*_broken_rules(opened), *_missing(opened)]
    click.echo(json.dumps(about, indent=2) if as_json else "\n".join([_headline(about), *before, "", text]))


def _runs() -> tuple[list[dict[str, Any]], list[ProbesError]]:
    """Return the runs in ./runs, and the errors of runs and directories that cannot be read."""
    unread: list[StorageError] = []
    found, failed = [], []
    for path in run_directories(RUNS, unread=unread):
        try:
            found.append(_run(open_run(path)))
        except ProbesError as error:
            failed.append(error)
    return found, [*failed, *unread]


def _run(run: RunReader) -> dict[str, Any]:
    return {"run": str(run.place), "epochs": [{"epoch": epoch, "state": state} for epoch, state in sorted(run.state.items())]}


def _series(outline: SeriesOutline, suffix: str) -> dict[str, Any]:
    return {
        "series": str(SeriesAddress(outline.key, suffix)),
        **outline.key._asdict(),
        "dtype": outline.dtype,
        "captures": outline.captures,
        "shape": outline.shape,
        "dims": outline.dims,
        "bytes": outline.nbytes,
        "epochs": list(outline.epochs),
    }


def _headline(about: dict[str, Any]) -> str:
    return f"{click.style(one_line(about['run']), bold=True)}  {_epochs_text(about['epochs'])}"


def _launches(starts: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line on how many ranks the run has, and how that changed."""
    words = [_ranks(one["world"]) for one in starts[:1]]
    for one in starts[1:]:
        by = f", {one['launcher']} restart {one['restart']}" if one["restart"] else ""
        words.append(f"attempt {one['attempt']} on {_ranks(one['world'])} from epoch {one['next_epoch']}{by}")
    return [one_line("; ".join(words))] if words and (len(starts) > 1 or starts[0]["world"] > 1) else []


def _edits(run: RunReader) -> list[str]:
    """Return the names of the probes that edit; an untrusted manifest may contain anything there."""
    spec = run.manifest.get("spec")
    names = spec.get("edits") if isinstance(spec, Mapping) else None
    return [str(name) for name in names] if isinstance(names, list) else []


def _edits_text(names: Sequence[str]) -> list[str]:
    """Return a line if probes changed values of the model."""
    return [one_line(f"edited: {', '.join(f'`{name}`' for name in names)} changed values of the model")] if names else []


def _ranks(world: int) -> str:
    return f"{world} rank" if world == 1 else f"{world} ranks"


def _broken_rules(run: RunReader) -> list[str]:
    """Return a line per rule that was broken, and one per series."""
    return [one_line(line) for line in verdicts_in_words(run.verdicts, ranks=run.has_ranks)]


def _missing(run: RunReader) -> list[str]:
    """Return one line per probe, value and reason."""
    return [one_line(f"missing: {line}") for line in missing_in_words(run.missing)]


def _epochs_text(epochs: Sequence[dict[str, Any]]) -> str:
    if not epochs:
        return "no epochs"
    states = dict.fromkeys(epoch["state"] for epoch in epochs)
    parts = [f"{spans([epoch['epoch'] for epoch in epochs if epoch['state'] == state])} {state}" for state in states]
    return f"{'epoch' if len(epochs) == 1 else 'epochs'} {', '.join(parts)}"


def _runs_text(runs: Sequence[dict[str, Any]]) -> str:
    if not runs:
        return "no runs in ./runs; `probes demo` makes one"
    return table(("run", "epochs"), [(run["run"], _epochs_text(run["epochs"])) for run in runs])


def _shown(attempt: Mapping[str, Any]) -> str:
    if attempt["before"] is not None:
        return f"before step {attempt['before']}"
    return "yes" if attempt["current"] else "no"


def _attempts_text(attempts: Sequence[dict[str, Any]]) -> str:
    header = ("epoch", "rank", "attempt", "state", "shown", "files")
    rows = [
        (str(one["epoch"]), str(one["rank"]), str(one["attempt"]), one["state"], _shown(one), " ".join(one["files"])) for one in attempts
    ]
    return table(header, rows, right=header[:3])


def _series_text(series: Sequence[dict[str, Any]]) -> str:
    if not series:
        return ""
    header = ("series", "captures", "dtype", "shape", "bytes", "epochs")
    rows = [(one["series"], str(one["captures"]), one["dtype"], _shape(one), size(one["bytes"]), spans(one["epochs"])) for one in series]
    return table(header, rows, right=("captures", "bytes"))


def _shape(series: dict[str, Any]) -> str:
    return str(Signature(series["dtype"], series["shape"], series["dims"])).removeprefix(series["dtype"])
