"""`probes watch`: follow a run while it is written."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import click

from probes.commands.options.values import INTERVAL, RUN_PATH
from probes.commands.rendering.progress_text import progress_line, progress_text
from probes.errors import StorageError, UsageError
from probes.reader.following.followed_run import FollowedRun, RunProgress
from probes.reader.following.followed_series import FollowedSeries
from probes.reader.series_index import key_pattern
from probes.run_directory.search import newest_run

RUNS = Path("runs")
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"  # the alternate screen, without a cursor, long lines cut
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
PATIENCE = 3  # number of agreeing polls after which a run is over: a sealer may still work, and a refused start removes its files

Show = Callable[[RunProgress], None]
Chosen = Callable[[RunProgress], list[FollowedSeries]]


@click.command()
@click.argument("run", required=False, type=RUN_PATH)
@click.option("--series", "patterns", multiple=True, metavar="PATTERN", help="Show these series, such as 'gradnorm/**'; repeatable.")
@click.option("--interval", type=INTERVAL, default=1.0, show_default=True, help="Seconds between checks.")
@click.option("--once", is_flag=True, help="Print the state of the run once, and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object for each check.")
@click.pass_context
def watch(context: click.Context, run: Path | None, patterns: tuple[str, ...], interval: float, once: bool, as_json: bool) -> None:
    """Follow RUN while another process writes it: step, captures and bytes a second, last numbers, events, disk space.

    Without RUN, the run in ./runs that was begun last. The run is only read: nothing is locked or written. Ctrl-C ends it with exit code 0,
    as the end of the run does; if the process of the run
    has ended and left unsealed journals, or files are damaged, the exit code is 1.
    Into a pipe or a file, print one line for each check that finds something new.
    """
    followed = FollowedRun(_meant(run, once))
    chosen = [key_pattern(pattern) for pattern in patterns]

    def series(progress: RunProgress) -> list[FollowedSeries]:
        return [one for one in progress.series if not chosen or any(fits(one.key) for fits in chosen)]

    screen = sys.stdout.isatty() and not as_json and not once
    show = _json(series) if as_json else _frame(series) if screen else _whole(series) if once else _changed()
    found = RunProgress(str(followed.path))
    try:
        with _screen() if screen else nullcontext():
            for found in _twice(followed, interval) if once else _looks(followed, interval):
                show(found)
    except KeyboardInterrupt:
        context.exit(0)
    finally:
        if screen:
            click.echo(progress_text(found, series(found), shutil.get_terminal_size().lines))
    context.exit(1 if found.state in ("killed", "damaged") else 0)


def _meant(run: Path | None, once: bool) -> Path:
    """Return the run directory.

    Raises:
        StorageError: there is no run, and no name of one to wait for.
        UsageError: the path is that of a file.
    """
    if run is not None and run.exists() and not run.is_dir():
        raise UsageError(f'`probes watch` follows a run directory, and "{run}" is a file; `probes ls` lists what a file holds')
    below = RUNS if run is None else run
    found = newest_run(below)
    if found is not None or (run is not None and not once):
        return found or below
    if run is None:
        raise StorageError(f'there is no run in "{RUNS}"; `probes watch DIR` waits for a run in a directory that you name')
    raise StorageError(f'there is no run in "{run}"; without `--once`, `probes watch` waits for it')


def _looks(followed: FollowedRun, interval: float) -> Iterator[RunProgress]:
    """Poll until the run is over."""
    gone = 0
    while True:
        found = followed.look()
        yield found
        gone = gone + 1 if found.is_over else 0
        if found.state == "finished" or gone >= PATIENCE:
            return
        time.sleep(interval)


def _twice(followed: FollowedRun, interval: float) -> Iterator[RunProgress]:
    """Poll once; poll a run that is being written twice, so that its speed is known."""
    found = followed.look()
    if not found.is_over and found.state != "waiting":
        time.sleep(interval)
        found = followed.look()
    yield found


def _json(series: Chosen) -> Show:
    return lambda found: click.echo(json.dumps(replace(found, series=series(found)).as_dict()))


def _whole(series: Chosen) -> Show:
    return lambda found: click.echo(progress_text(found, series(found)))


def _changed() -> Show:
    """Return a function that prints a line if something is new."""
    before: list[object] = [None]

    def show(found: RunProgress) -> None:
        now = (found.state, found.captures, found.sealed, len(found.events), len(found.problems))
        if now != before[0]:
            before[0] = now
            click.echo(progress_line(found))

    return show


def _frame(series: Chosen) -> Show:
    """Return a function that draws over the previous frame."""

    def show(found: RunProgress) -> None:
        text = progress_text(found, series(found), shutil.get_terminal_size().lines)
        sys.stdout.write(HOME + text.replace("\n", f"{REST_OF_LINE}\n") + REST_OF_SCREEN)
        sys.stdout.flush()

    return show


@contextmanager
def _screen() -> Iterator[None]:
    """Use the alternate screen of the terminal, and leave it also if the program is terminated, as by `timeout`."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.stdout.write(ENTER)
    try:
        yield
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, before)
