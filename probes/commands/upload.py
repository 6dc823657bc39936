"""`probes upload`: copy a run into a remote store, also while it is written."""

from __future__ import annotations

import time
from pathlib import Path

import click

from probes.commands.options.values import INTERVAL, RUN_PATH
from probes.commands.rendering.advance_line import LongCommand
from probes.errors import StorageError, UsageError
from probes.reader.following.writer_life import ALIVE, UNKNOWN, life_of
from probes.run_directory.remote.store import RemoteFolder
from probes.run_directory.remote.upload import Upload
from probes.run_directory.search import is_run, remote_url


@click.command(cls=LongCommand)
@click.argument("run", type=RUN_PATH)
@click.argument("url")
@click.option("--follow", is_flag=True, help="Continue until the run ends; wait if it has not begun.")
@click.option("--interval", type=INTERVAL, default=5.0, show_default=True, help="Seconds between checks with --follow.")
def upload(run: Path, url: str, follow: bool, interval: float) -> None:
    """Copy the sealed files, ledger, manifest and spec of RUN to URL, such as s3://bucket/runs/a.

    Each file is copied after its ledger line was written. Files that already exist are kept, so the same command continues a copy.
    A store that fails is tried again; with `--follow` until the run ends. This is a separate process, so the training never waits for it.
    `probes ls URL`, `probes verify URL` and `probes.open(URL)` read the copy.
    """
    place = remote_url(url)
    if place is None:
        raise UsageError(f'"{url}" is not a URL; write for example s3://bucket/runs/a or file:///mnt/runs/a')
    if not follow and not _is_there(run):
        raise StorageError(f'"{run}" is not a run directory; with `--follow`, `probes upload` waits for it')
    task = Upload(run, RemoteFolder(place))
    failed = ""
    while True:
        alive = follow and (not _is_there(run) or life_of(run)[0] in (ALIVE, UNKNOWN))  # asked first, so that the last copy is complete
        failed = _copied(task, place, failed, alive)
        if not alive:
            return
        time.sleep(interval)


def _is_there(run: Path) -> bool:
    return run.is_dir() and is_run(run)


def _copied(task: Upload, url: str, before: str, alive: bool) -> str:
    """Copy what is new, and return what failed; the same failure is printed once while the run continues.

    Raises:
        StorageError: the copy failed, and the run is over.
    """
    try:
        for name in task.sync():
            click.echo(f"{name} -> {url}", err=True)
    except StorageError as error:
        if not alive:
            raise
        if str(error) != before:
            click.echo(f"warning: {error}; it is tried again", err=True)
        return str(error)
    return ""
