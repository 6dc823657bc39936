"""Candidates for a word on the command line: specs, codes, runs, series, module paths."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from probes.clock import SeriesKey
from probes.run_directory.search import begun

PRESETS = Path(__file__).parents[2] / "presets"
MOST_FOLDERS = 2_000  # limit of directories that are searched for runs
DEPTH = 3  # runs/NAME/RUN-ID

Items = list[CompletionItem]


def specs(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Presets and files."""
    presets = sorted(f"preset:{path.stem}" for path in PRESETS.glob("*.yaml"))
    return [*_fitting(presets, incomplete), CompletionItem(incomplete, type="file")]


def presets(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Presets by their bare names."""
    return _fitting(sorted(path.stem for path in PRESETS.glob("*.yaml")), incomplete)


def codes(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Error codes."""
    from probes.error_codes import CODES

    return _fitting(CODES, incomplete)


def runs(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Runs below the typed folder, and the capture files of a run; if there are none, folders."""
    typed = Path(incomplete)
    folder = typed if incomplete.endswith("/") else typed.parent
    found = [str(path) for path in (sorted(folder.glob("epoch-*.h5")) if _is_run(folder) else _runs_below(folder))]
    return _fitting(found, incomplete) or [CompletionItem(incomplete, type="dir")]


def series(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """The series of the run in the command, and a pattern for the series of each probe."""
    keys = _keys(context)
    words = sorted(map(str, keys))
    return _fitting([*words, *(f"{probe}/**" for probe in dict.fromkeys(key.probe for key in keys))], incomplete)


def targets(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Module paths of the first run, and after `OLD=` those of the second."""
    old, sign, _new = incomplete.partition("=")
    found = dict.fromkeys(key.target for key in _keys(context, "b" if sign else "a"))
    return _fitting([f"{old}={target}" for target in found] if sign else found, incomplete)


def files(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Files and folders."""
    return [CompletionItem(incomplete, type="file")]


CANDIDATES: dict[str, Callable[[click.Context, click.Parameter, str], Items]] = {
    "code": codes,
    "file": files,
    "preset": presets,
    "run": runs,
    "series": series,
    "spec": specs,
    "target": targets,
}


def _fitting(words: Iterable[str], incomplete: str) -> Items:
    """The words that begin as typed; names with a character that cannot be printed are left out, because a shell would interpret it."""
    return [CompletionItem(word) for word in words if word.startswith(incomplete) and word.isprintable()]


def _is_run(path: Path) -> bool:
    return (path / "run.json").is_file() or next(path.glob("ledger*.jsonl"), None) is not None


def _runs_below(folder: Path) -> list[Path]:
    """Runs below a folder, the newest first."""
    found: list[Path] = []
    waiting, looked = [(folder, 0)], 0
    while waiting and looked < MOST_FOLDERS:
        path, depth = waiting.pop(0)
        looked += 1
        if depth and _is_run(path):
            found.append(path)
        elif depth < DEPTH:
            waiting += [(below, depth + 1) for below in _folders(path)]
    return sorted(found, key=begun, reverse=True)


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [path / one.name for one in entries if one.is_dir(follow_symlinks=False) and not one.name.startswith(".")]
    except OSError:
        return []


def _keys(context: click.Context, side: str = "") -> list[SeriesKey]:
    """The series in the ledgers of a run; none if it has no line yet."""
    named = next((context.params[name] for name in (side, "run") if context.params.get(name)), None)
    if not isinstance(named, str):
        return []
    path = Path(named).parent if named.endswith(".h5") else Path(named)
    run = path if _is_run(path) else next(iter(_runs_below(path)), path)
    return list(dict.fromkeys(key for ledger in sorted(run.glob("ledger*.jsonl")) for key in _listed(ledger)))


def _listed(ledger: Path) -> Iterator[SeriesKey]:
    """The series in the lines of a ledger; damaged lines are left out, `probes ls` reports them."""
    for line in ledger.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row: Any = json.loads(line)
            for one in row["series"] if isinstance(row["series"], list) else ():
                yield SeriesKey(*(str(one[name]) for name in SeriesKey._fields))
        except (ValueError, KeyError, TypeError):
            continue
