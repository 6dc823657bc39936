"""The run directory: its name, its owner, and the files that it has from the start."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from probes.digest import blake3_hex
from probes.errors import StorageError
from probes.plain_file import sync_directory
from probes.run_directory.file_name import final_name, manifest_files
from probes.run_directory.launch.launch_file import is_launch_file, launches
from probes.run_directory.owner.claim import claims, is_claim
from probes.run_directory.owner.ownership import Ownership, is_of_start, own
from probes.run_directory.publish import write_whole


def new_run_id(job: str = "") -> str:
    """A name for a run: UTC time and four hex digits, which sorts by time; the ranks of one launch agree on `launch-` and twelve digits.

    Args:
        job: what the ranks of a launch have in common; empty for one process.
    """
    if not job:
        return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    return f"launch-{blake3_hex(job.encode())[:12]}"


_started: list[Path] = []  # the working directory at the start of the command; a script may change it later


@contextmanager
def started_here() -> Iterator[None]:
    """Resolve default directories and printed paths against the working directory as it is now, also if the body changes it.

    Raises:
        StorageError: the working directory was deleted.
    """
    try:
        _started.append(Path.cwd())
    except FileNotFoundError as error:
        raise StorageError("the working directory was deleted; change to one that exists, and start the command again") from error
    try:
        yield
    finally:
        _started.pop()


def where_started() -> Path:
    """The directory to which the paths of the command line are relative."""
    return _started[-1] if _started else working_directory()


def working_directory() -> Path:
    """The working directory; a path that cannot exist if it was deleted, as the training continues in it."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.environ.get("PWD", os.sep), "(deleted)")


def default_directory(name: str, run_id: str) -> Path:
    """`runs/<name>/<run-id>` below the directory in which the command was started."""
    return where_started() / "runs" / name / run_id


def shown(directory: Path) -> str:
    """A directory as a person would name it, from where the program started."""
    here = where_started()
    return str(directory.relative_to(here)) if directory.is_relative_to(here) else str(directory)


def typed(directory: Path) -> str:
    """A directory as an argument of a command that a person can copy; a name with spaces is quoted."""
    return shlex.quote(shown(directory))


def claim(directory: Path, run_id: str, rank: int | None = None, *, task: str = "write", take_over: bool = False) -> Ownership:
    """Claim a directory that is absent, empty, or holds only the files of a start that was killed.

    Args:
        directory: the run directory; the ranks of one launch share it.
        run_id: name of the run, the same on every rank.
        rank: rank of this process, if the launch has several.
        task: the purpose of the claim.
        take_over: continue even if it is not known whether the process of an unfinished start still runs.

    Raises:
        StorageError: it cannot be made, holds something, or another run has claimed it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f'run directory "{directory}" cannot be created: {error.strerror}; choose another directory with `out`'
        ) from error
    left = unfinished(directory)
    if not claims(directory):  # else the claim says more than the files
        _refuse_used(directory, run_id, rank, left)
    owned = own(directory, run_id, rank, task=task, take_over=take_over, ends=lambda found: not found.has_begun)
    with owned.released_if_it_fails():
        owned.sweep()
        _refuse_used(directory, run_id, rank, set())  # another run may have begun and ended between the look and the claim
    return owned


def unfinished(directory: Path) -> set[str]:
    """The files of starts that were killed before their manifest had its name; they belong to no run."""
    names: set[str] = set()
    for found in claims(directory):
        if found.claim.files and found.life != "alive" and not found.has_begun:
            names |= {path.name for path in directory.iterdir() if is_of_start(path.name, found.claim.files)}
    return names


def _refuse_used(directory: Path, run_id: str, rank: int | None, left: set[str]) -> None:
    there = sorted(path.name for path in directory.iterdir())
    mine = "" if rank is None else f".rank-{rank:04d}."
    launch = rank is not None and _has_launch(directory, run_id, mine)
    nobodys = not has_begun(directory)  # the launch file of a start that no rank finished
    there = [name for name in there if not is_claim(name) and name not in left and (not launch or mine in name)]
    there = [name for name in there if not (nobodys and _is_of_launch(name))]
    if there:
        used = f'run directory "{directory}" is not empty (it holds "{there[0]}"); files are never overwritten'
        ways = ["choose another directory with `out`", "delete this one"]
        ways += [] if nobodys else ["continue its run with `--resume` (`resume=True`)"]
        raise StorageError(f"{used}: {', '.join(ways[:-1])}, or {ways[-1]}")


def _is_of_launch(name: str) -> bool:
    return is_launch_file(name) or is_launch_file(final_name(name) or "")


def has_begun(directory: Path) -> bool:
    """Whether a rank has begun a run in a directory: its manifest, which is written last, is there."""
    return any(manifest_files(directory))


def _has_launch(directory: Path, run_id: str, mine: str) -> bool:
    """Whether another rank of the launch has files here: it may be ahead of this one."""
    if any(found.claim.run_id == run_id and mine not in found.path.name for found in claims(directory)):
        return True
    if any(one.run_id == run_id for one in launches(directory).values()):
        return True
    text = f'"run_id": "{run_id}"'
    return any(text in path.read_text("utf-8", "replace") for path in directory.glob("run*.json"))


def write_start(owned: Ownership, files: Mapping[str, bytes], *, again: bool) -> None:
    """Write the files of a start; the last one marks the start as finished, and appears only after all others.

    Args:
        owned: the directory.
        files: contents by name; the manifest is the last.
        again: whether the run was begun before; files that a killed start has left are then replaced.

    Raises:
        StorageError: a file cannot be written; none of them is there.
    """
    try:
        if not again:
            owned.declare(tuple(files))
        for name, content in files.items():
            write_whole(owned.directory / name, content, replace=again and name != [*files][-1])
        sync_directory(owned.directory.parent)
    except BaseException as error:  # also on an interrupt: the claim is removed next, and it alone says whose files these are
        if not again:
            for name in files:
                (owned.directory / name).unlink(missing_ok=True)
        if isinstance(error, StorageError) or not isinstance(error, OSError):
            raise
        raise StorageError(f'cannot write "{error.filename or owned.directory}": {error.strerror}') from error
