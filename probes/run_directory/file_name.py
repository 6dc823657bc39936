"""Names of the files of a run directory."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from probes.errors import UsageError

TEMPORARY = ".tmp"  # suffixes of files that are not complete yet
KEPT = ".kept"  # suffix of a journal with steps that no file contains
CONTINUED = "continued in the next segment"  # the reason of all segments except the last of its epoch

_TEMPORARY = re.compile(r"(.+)[.]\d+-[0-9a-f]{8}[.]tmp|(epoch-.+[.]h5)[.]tmp")
_NUMBER = "[0-9]{4,10}"  # all of them are below 2^32
_STEM = re.compile(rf"epoch-({_NUMBER})(?:\.a([0-9]{{1,10}}))?(?:\.s({_NUMBER}))?(?:\.rank-({_NUMBER}))?")
_LEDGER = re.compile(rf"ledger(?:\.rank-({_NUMBER}))?\.jsonl")
_SPARE = re.compile(rf"spare(?:\.rank-({_NUMBER}))?\.journal")
_MANIFEST = re.compile(rf"run(?:\.a([0-9]{{1,10}}))?(?:\.rank-({_NUMBER}))?\.json")


def ledger_files(directory: Path) -> list[Path]:
    """The ledgers of a run, sorted by name; a copy under another name, such as `ledger.bak.jsonl`, is not one."""
    return sorted(path for path in directory.glob("ledger*.jsonl") if is_ledger(path.name))


def is_ledger(name: str) -> bool:
    """Whether a name is exactly that of a ledger."""
    found = _LEDGER.fullmatch(name)
    return found is not None and Stem(0, rank=_number(found[1])).ledger == name


def spare_journals(directory: Path) -> list[Path]:
    """The spare journals of a run, sorted by name."""
    return sorted(path for path in directory.glob("spare*.journal") if _SPARE.fullmatch(path.name))


def manifest_files(directory: Path) -> list[Path]:
    """The manifests of a run, sorted by name; a file under another name, such as `run.bak.json`, is not one."""
    return sorted(path for path in directory.glob("run*.json") if _is_manifest(path.name))


def _is_manifest(name: str) -> bool:
    found = _MANIFEST.fullmatch(name)
    return found is not None and manifest_name(int(found[1] or 1), _number(found[2])) == name


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def temporary_name(name: str) -> str:
    """A unique temporary name for a file that is not complete yet."""
    return f"{name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}"


def final_name(name: str) -> str | None:
    """The final name of a temporary file; None if the name is not that of a temporary file."""
    found = _TEMPORARY.fullmatch(name)
    return found and (found[1] or found[2])


class Stem(NamedTuple):
    """The parts of the name of a journal or a sealed file, without its suffix.

    Attributes:
        epoch: number of the epoch.
        attempt: 1 if the name has none.
        segment: 0 if the epoch is not cut into segments.
        rank: None if the run has one process.
    """

    epoch: int
    attempt: int = 1
    segment: int = 0
    rank: int | None = None

    def __str__(self) -> str:
        attempt = f".a{self.attempt}" if self.attempt > 1 else ""
        segment = f".s{self.segment:04d}" if self.segment else ""
        return f"epoch-{self.epoch:04d}{attempt}{segment}" + (f".rank-{self.rank:04d}" if self.rank is not None else "")

    @property
    def ledger(self) -> str:
        """The ledger that lists this file; each rank has its own."""
        return "ledger.jsonl" if self.rank is None else f"ledger.rank-{self.rank:04d}.jsonl"

    @property
    def spare(self) -> str:
        """The name of a sealed journal that is kept as space for a later one."""
        return "spare.journal" if self.rank is None else f"spare.rank-{self.rank:04d}.journal"


def parse_stem(name: str) -> Stem:
    """The parts of a file name such as `epoch-0003.a2.s0001.rank-0002.journal`.

    Raises:
        UsageError: the name is not that of a journal or a sealed file.
    """
    stem, _, suffix = name.rpartition(".")
    found = _STEM.fullmatch(stem)
    meant = None if found is None else Stem(int(found[1]), int(found[2] or 1), int(found[3] or 0), _number(found[4]))
    if meant is None or str(meant) != stem or suffix not in ("journal", "h5"):  # `epoch-00003.h5` is a second name for one place
        raise UsageError(f'"{name}" is not the name of a journal, such as `epoch-0003.journal` or `epoch-0003.a2.journal`')
    return meant


def is_epoch_file(name: str) -> bool:
    """Whether a name is that of a journal, also of one that was kept, or of a sealed file; `epoch-3.pt` is that of a checkpoint."""
    try:
        parse_stem(name.removesuffix(KEPT))
    except UsageError:
        return False
    return True


def is_journal(name: str) -> bool:
    """Whether the name of a file, which a user may have changed, is that of a journal and not of an HDF5 file."""
    return name.removesuffix(KEPT).endswith(".journal")


def manifest_name(attempt: int = 1, rank: int | None = None) -> str:
    """The name of the manifest of one start: `run.json`, then `run.a2.json`; of ranks but the first `run.rank-0001.json`."""
    again = f".a{attempt}" if attempt > 1 else ""
    return f"run{again}{f'.rank-{rank:04d}' if rank else ''}.json"


def attempt_of_manifest(name: str) -> int:
    """The attempt in the name of a manifest."""
    found = _MANIFEST.fullmatch(name)
    return int(found[1] or 1) if found is not None else 0
