"""The run directory: its name, its owner, and the files that it has from the start."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from probes.digest import blake3_hex
from probes.errors import StorageError
from probes.run_directory.claim import claim_name, claims, in_use, is_claim, locked, release, take

LAUNCHERS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")  # the same on every rank of one launch


def new_run_id(world: int = 1) -> str:
    """A name for a run: UTC time and four hex digits, which sorts by time; the ranks of one launch agree on `launch-` and twelve digits.

    Args:
        world: number of processes of the launch.
    """
    if world == 1:
        return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    launcher = next((os.environ[name] for name in LAUNCHERS if os.environ.get(name, "none") != "none"), "")
    return f"launch-{blake3_hex((launcher or _parent()).encode())[:12]}"


def _parent() -> str:
    """What the processes of a launch without an id have in common: where they meet, and the process that started them."""
    meeting = [os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")]
    try:
        began = Path(f"/proc/{os.getppid()}").stat().st_ctime_ns
    except OSError:
        began = 0
    return ":".join([*meeting, str(os.getppid()), str(began)])


_started: list[Path] = []  # where the command was started, while a script runs that may change its working directory


@contextmanager
def started_here() -> Iterator[None]:
    """Take the working directory for the one that default directories and printed paths are relative to, whatever the body makes of it."""
    _started.append(Path.cwd())
    try:
        yield
    finally:
        _started.pop()


def where_started() -> Path:
    """The directory that a person types paths from."""
    return _started[-1] if _started else Path.cwd()


def default_directory(name: str, run_id: str) -> Path:
    """`runs/<name>/<run-id>` below the directory that the command was started in."""
    return where_started() / "runs" / name / run_id


def shown(directory: Path) -> str:
    """A directory as a person would type it."""
    here = where_started()
    return str(directory.relative_to(here)) if directory.is_relative_to(here) else str(directory)


def claim(directory: Path, run_id: str, rank: int | None = None) -> None:
    """Make an absent or empty directory ours; the ranks of one launch share it.

    Args:
        directory: the run directory.
        run_id: name of the run, the same on every rank.
        rank: rank of this process, where the launch has several.

    Raises:
        StorageError: it cannot be made, holds something, or another run has claimed it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f'run directory "{directory}" cannot be created: {error.strerror}; choose another directory with `out`'
        ) from error
    _refuse_used(directory, run_id, rank)
    take(directory, run_id, rank)
    try:
        _refuse_used(directory, run_id, rank, claimed=True)  # a run may have come and gone between the look and the claim
    except StorageError:
        release(directory, rank)
        raise


def _refuse_used(directory: Path, run_id: str, rank: int | None, *, claimed: bool = False) -> None:
    there = sorted(path.name for path in directory.iterdir())  # before the claims: another rank's stands before its files do
    with locked(directory):  # nobody is in the middle of writing one
        holders = claims(directory)
    own = claim_name(rank)
    if claimed:
        holders.pop(own, None)
    others = [holder for name, holder in holders.items() if name == own or rank is None or holder.run_id != run_id]
    if others:
        raise StorageError(in_use(directory, others[0]))
    mine = "" if rank is None else f".rank-{rank:04d}."
    launch = rank is not None and _has_launch(directory, run_id, mine)
    there = [name for name in there if not is_claim(name) and (not launch or mine in name)]
    if there:
        raise StorageError(
            f'run directory "{directory}" is not empty (it holds "{there[0]}"); files are never overwritten: '
            "choose another directory with `out`, or continue that run with `--resume` (`resume=True`)"
        )


def _has_launch(directory: Path, run_id: str, mine: str) -> bool:
    """Whether another rank of the launch is there, or was: it may be ahead of us."""
    if any(holder.run_id == run_id and mine not in name for name, holder in claims(directory).items()):
        return True
    text = f'"run_id": "{run_id}"'
    return any(text in path.read_text("utf-8", "replace") for path in directory.glob("run*.json"))


def write_new(path: Path, text: bytes) -> None:
    """Write a new file of the run directory and sync it.

    Raises:
        StorageError: it exists, or cannot be written.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f'cannot write "{path}": {error.strerror}') from error
