"""Recovery of a run whose process has ended: seals its journals, and reports files that do not fit."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from probes.errors import FileRefused, ProbesError, StorageError
from probes.progress.loops import with_progress
from probes.run_directory.file_name import KEPT, TEMPORARY, Stem, final_name, ledger_files, parse_stem, spare_journals
from probes.run_directory.ledger import Ledger
from probes.run_directory.ledger_lines import FIRST, LedgerLine, run_head
from probes.run_directory.listing import Directory
from probes.run_directory.owner.claim import claims
from probes.run_directory.owner.ownership import own
from probes.run_directory.seal import JournalSealer, UnprovenSteps
from probes.run_directory.search import is_run, run_directories

UNPROVEN_WAYS = (
    "if that machine did not crash (a killed job, a copy of the directory), `probes recover --unproven include` takes them all; "
    "else `--unproven exclude` leaves them out"
)
DAMAGE = ("missing", "unlisted", "refused")


@dataclass(frozen=True)
class RecoveryFinding:
    """One thing that was found.

    Attributes:
        file: its name in the run directory.
        action: `sealed` (a file was built), `finished` (it was built already, and only its journal was left), `emptied` (a
            journal without a single step was removed), `kept` (a journal, or the rest of one, holds steps that are in no file),
            `swept` (half a file was removed), or one of `DAMAGE`: `missing` (in
            the ledger, not in the directory), `unlisted` (in the directory, not in the ledger; left alone), `refused`
            (cannot be sealed; left alone).
        message: what it is, or what is wrong with it.
        complete: of what was sealed, whether its epoch is complete.
        captures: of what was sealed, how many captures it holds.
    """

    file: str
    action: str
    message: str
    complete: bool = False
    captures: int = 0


@dataclass(frozen=True)
class Recovery:
    """Findings in a run directory, and what was done about them.

    Attributes:
        directory: the run directory.
        findings: in the order of their names; empty if all was in order.
        heads: for each ledger the hash of its last line.
        absent: epochs that ranks have no file of, by these ranks.
    """

    directory: Path
    findings: tuple[RecoveryFinding, ...]
    heads: dict[str, str]
    absent: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def head(self) -> str:
        """The head of the run, over all ledgers; empty if nothing was sealed."""
        return run_head({name: head for name, head in self.heads.items() if head != FIRST})

    @property
    def damaged(self) -> bool:
        """Whether a problem remains that recovery could not solve."""
        return any(finding.action in DAMAGE for finding in self.findings)


def recover(directory: Path, *, take_over: bool = False, unproven: str = "keep") -> Recovery:
    """Seal every journal that is left in a run directory, and report files that do not fit together.

    What this does to each state, with J a journal, L a line in the ledger, F a sealed file:

    - J alone, or J and F without L (killed while sealing): sealed; F is replaced, if it says that it is of the same run.
    - J, F and L (killed before the journal was removed): the journal is removed.
    - F without J and L: reported as `unlisted`, not touched.
    - L without F: reported as `missing`; a J there is kept.

    A J of another machine, or of an earlier start of this one, may hold steps of which nothing proves that their bytes came to the
    device. J is removed only if F has all its steps.

    Args:
        directory: the run directory.
        take_over: continue even if it is not known whether the process still lives that has claimed it.
        unproven: what happens to a journal with steps that nothing proves: `keep` it as it is, `include` them because it is known
            that the machine did not crash, or `exclude` them and keep the journal under another name.

    Raises:
        StorageError: there is no such directory, or another process owns it.
        FileRefused: the ledger is damaged.
    """
    if not directory.is_dir():
        raise StorageError(f'"{directory}" is not a directory')
    owned = own(directory, "", task="recover", take_over=take_over)
    try:
        swept = tuple(RecoveryFinding(name, "swept", "a start that was never finished") for name in owned.sweep())
        found = seal_leftovers(directory, unproven=unproven)
        return replace(found, findings=(*swept, *found.findings, *_sweep_spares(directory)), absent=_absent(directory))
    finally:
        owned.release()


def recover_all(path: Path, *, take_over: bool = False, unproven: str = "keep") -> list[Recovery]:
    """Recover a run and the runs next to it that `probes run` began for other models of the same script; or all runs below a directory.

    If there are several, one that cannot be recovered is a finding, and the others are recovered.

    Args:
        path: a run directory, or a directory of runs.
        take_over: see `recover`.
        unproven: see `recover`.

    Raises:
        StorageError: there is no run, or another process owns the only one.
        FileRefused: the ledger of the only one is damaged.
    """
    below = [] if _is_begun(path) or not path.is_dir() else sorted(run_directories(path))
    if path.is_dir() and not below and not _is_begun(path) and not side_directories(path):
        raise StorageError(f'"{path}" holds no run: there is no run.json, no ledger and no epoch file in it')
    if not below:
        return [recover(one, take_over=take_over, unproven=unproven) for one in (path, *side_directories(path))]
    every = dict.fromkeys(one for run in below for one in (run, *side_directories(run)))
    return [_recovered(run, take_over, unproven) for run in every]


def _is_begun(path: Path) -> bool:
    """Whether a directory holds a run, or what a start left that was killed before its manifest was there."""
    return path.is_dir() and (is_run(path) or bool(claims(path)) or any(final_name(one.name) for one in path.glob(f"*{TEMPORARY}")))


def _recovered(run: Path, take_over: bool, unproven: str) -> Recovery:
    try:
        return recover(run, take_over=take_over, unproven=unproven)
    except (StorageError, FileRefused) as error:
        return Recovery(run, (RecoveryFinding(".", "refused", str(error)),), {})


def _absent(directory: Path) -> dict[int, tuple[int, ...]]:
    with suppress(FileRefused):  # a damaged file is reported when it is read
        return Directory(directory).absent_ranks
    return {}


def side_directories(directory: Path) -> list[Path]:
    """The runs next to a run that `probes run` began for other models of the same script, and that a kill left there."""
    words = ("candidate", "instance")
    return sorted(path for word in words for path in directory.parent.glob(f"{glob.escape(directory.name)}.{word}-*") if path.is_dir())


def seal_leftovers(directory: Path, ours: Callable[[Stem], bool] = lambda stem: True, unproven: str = "keep") -> Recovery:
    """Do the work of `recover` in a directory that the caller has claimed.

    Args:
        directory: the run directory.
        ours: which files to check; those of one rank, where the others may still be writing.
        unproven: see `recover`.

    Raises:
        FileRefused: the ledger is damaged.
    """
    seals = JournalSealer(directory)
    journals = with_progress(sorted(_names(directory, ".journal", ours)), "journal")
    findings = [found for name in journals for found in _recover(seals, directory / name, unproven)]
    findings += _sweep(directory, ours)
    ledgers = {path.name: Ledger(path) for path in ledger_files(directory)}
    findings += _compare(directory, ledgers, ours)
    return Recovery(directory, tuple(findings), {name: ledger.head for name, ledger in ledgers.items()})


def _names(directory: Path, suffix: str, ours: Callable[[Stem], bool]) -> Iterator[str]:
    """The names in a directory that are those of files of epochs."""
    for path in directory.glob(f"epoch-*{suffix}"):
        stem = _stem(path.name)
        if stem is not None and ours(stem):
            yield path.name


def _stem(name: str) -> Stem | None:
    try:
        return parse_stem(name)
    except ProbesError:
        return None


def _recover(seals: JournalSealer, journal: Path, unproven: str) -> Iterator[RecoveryFinding]:
    try:
        sealed = seals.seal(journal.name, {"unproven": unproven})
    except UnprovenSteps as found:
        yield RecoveryFinding(journal.name, "kept", f"{found}; {UNPROVEN_WAYS}")
    except FileRefused as refused:
        if refused.code != "journal-empty":
            yield RecoveryFinding(journal.name, "refused", str(refused))
            return
        journal.unlink()
        yield RecoveryFinding(journal.name, "emptied", "it has no committed step")
    except StorageError as error:
        yield RecoveryFinding(journal.name, "refused", str(error))
    else:
        action = "finished" if sealed.repeated else "sealed"
        yield RecoveryFinding(sealed.file, action, sealed.reason, complete=sealed.complete, captures=sealed.captures)
        rest = journal.with_name(journal.name + KEPT)
        if rest.exists():
            yield RecoveryFinding(rest.name, "kept", "the journal, whose other steps are in no file")


def _sweep(directory: Path, ours: Callable[[Stem], bool]) -> Iterator[RecoveryFinding]:
    """Remove incomplete files without a journal."""
    for path in sorted(directory.glob("*.tmp")):
        final = final_name(path.name)
        stem = _stem(final) if final is not None else None
        if stem is not None and ours(stem) and not (directory / f"{stem}.journal").exists():
            yield _removed(path, "an unfinished file without its journal")


def _sweep_spares(directory: Path) -> Iterator[RecoveryFinding]:
    """Remove sealed journals that were kept as space for the next epoch of a process that has ended."""
    for path in spare_journals(directory):
        yield _removed(path, "a sealed journal whose space was kept for the next epoch")


def _removed(path: Path, what: str) -> RecoveryFinding:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return RecoveryFinding(path.name, "refused", f"it cannot be removed: {error.strerror}")
    return RecoveryFinding(path.name, "swept", what)


def _compare(directory: Path, ledgers: dict[str, Ledger], ours: Callable[[Stem], bool]) -> Iterator[RecoveryFinding]:
    listed: dict[str, LedgerLine] = {entry.file: entry for ledger in ledgers.values() for entry in ledger.entries}
    entries = {name for name in listed if (stem := _stem(name)) is not None and ours(stem)}
    there = set(_names(directory, ".h5", ours))
    for name in sorted(there - entries):
        if not (directory / f"{_stem(name)}.journal").exists():
            yield RecoveryFinding(name, "unlisted", "it is not in the ledger, and it has no journal to build it from")
    for name in sorted(entries - there):
        yield RecoveryFinding(name, "missing", "it is in the ledger, but not in the directory")
