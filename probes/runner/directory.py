"""The run directory: its name, and the claim that keeps a second run out of it."""

from __future__ import annotations

import json
import os
import secrets
import socket
from datetime import UTC, datetime
from pathlib import Path

from probes.digest import blake3_hex
from probes.errors import StorageError

CLAIM = "claim.json"
LAUNCHERS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")  # the same on every rank of one launch


def new_run_id() -> str:
    """UTC time and four hex digits, which sorts by time; the ranks of one launch agree on the digits."""
    launcher = next((os.environ[name] for name in LAUNCHERS if os.environ.get(name, "none") != "none"), "")
    digits = blake3_hex(launcher.encode())[:4] if launcher else secrets.token_hex(2)
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{digits}"


def default_directory(name: str, run_id: str) -> Path:
    """`runs/<name>/<run-id>` below the working directory."""
    return Path("runs") / name / run_id


def shown(directory: Path) -> str:
    """A directory as a person would type it from where the process is."""
    here = Path.cwd()
    return str(directory.relative_to(here)) if directory.is_relative_to(here) else str(directory)


def claim(directory: Path, run_id: str) -> None:
    """Make an absent or empty directory ours.

    Raises:
        StorageError: it cannot be made, holds something, or another run has claimed it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"run directory '{directory}' cannot be made: {error.strerror}; choose another with `out`") from error
    _refuse_used(directory)
    note = {"run_id": run_id, "pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    try:
        handle = os.open(directory / CLAIM, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise StorageError(_in_use(directory)) from None
    except OSError as error:
        raise StorageError(f"run directory '{directory}' cannot be written to: {error.strerror}; choose another with `out`") from error
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(note, file)


def _refuse_used(directory: Path) -> None:
    there = sorted(path.name for path in directory.iterdir())
    if CLAIM in there:
        raise StorageError(_in_use(directory))
    if there:
        raise StorageError(
            f"run directory '{directory}' is not empty (it holds '{there[0]}'); nothing is ever overwritten: choose another with `out`"
        )


def _in_use(directory: Path) -> str:
    try:
        note = json.loads((directory / CLAIM).read_text(encoding="utf-8"))
        holder = f"pid {note['pid']} on host {note['host']} since {note['since']}"
    except (OSError, ValueError, KeyError):
        holder = "another run"
    return f"run directory '{directory}' is in use by {holder}; choose another with `out`, or `probes recover` it if that run is dead"


def release(directory: Path) -> None:
    """Let go of a directory that we claimed."""
    (directory / CLAIM).unlink(missing_ok=True)


def publish(path: Path, text: bytes) -> None:
    """Write a new file of the run and sync it.

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
        raise StorageError(f"'{path}' cannot be written: {error.strerror}") from error
