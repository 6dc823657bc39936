"""Seal a journal: build its HDF5 file and add a line to the ledger.

`python -m probes.run_directory.seal RUN_DIR` is the child that the runner feeds: a journal's name per line on stdin, a result
per line on stdout.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

from probes.capture_file.codecs import Compression, compression
from probes.capture_file.hdf5_read import open_file
from probes.capture_file.outline import stated
from probes.capture_file.write import OnProgress, WrittenFile, ignore_progress, write_capture_file
from probes.digest import file_hex
from probes.errors import FileRefused, ProbesError, StorageError
from probes.host import free_words
from probes.journal.scan import Scan, scan
from probes.plain_file import regular
from probes.processes.subprocess_command import answer_line
from probes.run_directory.file_name import KEPT, Stem, final_name, parse_stem, temporary_name
from probes.run_directory.ledger import Ledger, SealedFileInfo
from probes.run_directory.ledger_lines import LedgerLine
from probes.run_directory.publish import publish

PATIENCE = 60.0  # seconds to wait for a journal that another process holds


def seal(journal: Path, run_dir: Path, options: Mapping[str, Any] | None = None, passed: OnProgress = ignore_progress) -> SealedFileInfo:
    """Seal one journal. Killed anywhere, the same call writes the same file and one line in the ledger.

    Args:
        journal: the journal; it goes, or becomes the spare one.
        run_dir: the directory of the run, which holds the journal.
        options: `compression` (none, gzip, zstd, blosc2), `spare` (keep the journal's space for a later epoch), `run_id` (of
            which run the journal has to be), `captures` (how many it has to hold) and `unproven` (what happens to steps that nothing
            proves: `exclude`, `include`, or `keep` the journal as it is).
        passed: called with the name of each point that is reached.

    Raises:
        StorageError: the disk or the directory does not take the file, or another file has its name.
        FileRefused: the journal, or the ledger, is not what it should be.
        MissingExtra: the compression needs a package that is not installed.
    """
    return JournalSealer(run_dir).seal(journal.name, options, passed)


class UnprovenSteps(StorageError):
    """The caller wants to keep a journal with unproven steps: from another machine, or from before a restart."""


class JournalSealer:
    """Seals the journals of one run directory, one after the other; its ledgers stay in memory.

    Attributes:
        directory: the run directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ledgers: dict[str, Ledger] = {}
        self._spares: set[Path] = set()

    def seal(self, name: str, options: Mapping[str, Any] | None = None, passed: OnProgress = ignore_progress) -> SealedFileInfo:
        """Seal one journal, given by its name in the directory; see `seal`."""
        began = perf_counter()
        wanted = {"compression": "none", "spare": False, "unproven": "exclude", **(options or {})}
        stem = parse_stem(name)
        how = None if wanted["compression"] == "none" else compression(str(wanted["compression"]))
        journal = self.directory / name
        with held(journal) as is_there:
            ledger = self._ledger(stem)
            before = ledger.entry(f"{stem}.h5")
            if not is_there and before is None:
                raise StorageError(f'there is no journal "{journal}"')
            scanned = _scan(journal, stem, wanted["unproven"] == "include") if is_there else None
            if scanned is not None and scanned.untrusted_commits and wanted["unproven"] == "keep":
                raise UnprovenSteps(f"it holds {scanned.left_out} (it was written on another machine, or before a restart)")
            entry = before or ledger.append(self._build(scanned, stem, how, passed, wanted))
            passed("entered")
            if scanned is not None:
                self._end(scanned, stem, before, bool(wanted["spare"]))
            passed("dropped")
        facts = entry.model_dump(include=set(SealedFileInfo.__dataclass_fields__))
        return SealedFileInfo(journal=name, head=entry.digest, seconds=perf_counter() - began, repeated=before is not None, **facts)

    def close(self) -> None:
        """Remove the journals that were kept to be written over."""
        for spare in self._spares:
            spare.unlink(missing_ok=True)

    def _build(
        self, scanned: Scan | None, stem: Stem, how: Compression | None, passed: OnProgress, wanted: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Build the file of a journal; return the fields of its ledger line."""
        path = self.directory / f"{stem}.h5"
        if scanned is None:
            raise StorageError(f'there is no journal of "{path}"')
        journal = scanned.path
        count, run_id = wanted.get("captures"), wanted.get("run_id")
        if run_id not in (None, scanned.head.get("run_id")):
            # The run was removed while it was sealed, and another run began here that may still write to this journal.
            raise StorageError(f'"{journal}" belongs to another run')
        if count not in (None, len(scanned.captures)):
            raise StorageError(f'"{journal}" holds {len(scanned.captures)} of the {count} captures that were committed; it is kept')
        return _facts(path, scanned, _make(scanned, path, how, passed))

    def _end(self, scanned: Scan, stem: Stem, before: LedgerLine | None, keep: bool) -> None:
        """Remove a journal whose file is in the ledger; if it was not sealed completely, keep it under another name."""
        journal = scanned.path
        if before is not None:
            _check_same(before, self.directory / f"{stem}.h5", scanned)
        spare = self.directory / stem.spare
        if scanned.left_out:
            publish(journal, journal.with_name(f"{journal.name}{KEPT}"))
        elif keep and not spare.exists():
            journal.rename(spare)
            self._spares.add(spare)
        else:
            journal.unlink()

    def _ledger(self, stem: Stem) -> Ledger:
        if stem.ledger not in self._ledgers:
            self._ledgers[stem.ledger] = Ledger(self.directory / stem.ledger)
        ledger = self._ledgers[stem.ledger]
        ledger.refresh()
        return ledger


@contextmanager
def held(journal: Path) -> Iterator[bool]:
    """Lock a journal against other processes; yields whether it still exists once the lock is held.

    Raises:
        FileRefused: it is not a regular file.
        StorageError: it cannot be opened, or another process does not release it.
    """
    try:
        handle = _opened(journal)
    except FileNotFoundError:
        yield False
        return
    try:
        _lock(handle, journal)
        yield _is(journal, handle)
    finally:
        os.close(handle)


def _opened(journal: Path) -> int:
    """A descriptor of a journal; the name may be that of anything.

    Raises:
        FileNotFoundError: there is nothing of this name.
        FileRefused: it is not a regular file.
        StorageError: it cannot be opened.
    """
    try:  # for writing, because NFS locks only such files
        handle = os.open(journal, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError:
        return regular(journal)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileRefused("not-regular", f'"{journal}" is not a regular file')
    return handle


def _lock(handle: int, journal: Path) -> None:
    deadline = monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() > deadline:
                raise StorageError(f'"{journal}" has been locked by another process for more than {PATIENCE:g} seconds') from None
            sleep(0.02)
            continue
        except OSError:  # no locks on this file system
            pass
        return


def _is(path: Path, handle: int) -> bool:
    """Whether a name still refers to an open file."""
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def _scan(journal: Path, stem: Stem, unproven: bool = False) -> Scan:
    """The content of a journal whose HEAD agrees with its name."""
    scanned = scan(journal, unproven=unproven)
    head = scanned.head
    said = Stem(int(head["epoch"]), int(head.get("attempt", 1)), int(head.get("segment") or 0), stem.rank)
    if said != stem or stem.rank not in (None, int(head.get("rank", 0))):
        raise FileRefused("journal-inconsistent", f'"{journal}" is the journal of {said}, rank {head.get("rank", 0)}, but has another name')
    return scanned


def _make(scanned: Scan, path: Path, how: Compression | None, passed: OnProgress) -> WrittenFile:
    """Build the file and give it its name."""
    temporary = path.with_name(temporary_name(path.name))
    try:
        _clear(path)
        built = write_capture_file(scanned, temporary, how, passed)
        passed("built")
        if path.exists():
            _check_unfinished(path, scanned)
            path.unlink()
        publish(temporary, path)
        passed("published")
        return built
    except OSError as error:
        temporary.unlink(missing_ok=True)  # on a full disk it would leave no space for the next step
        if isinstance(error, ProbesError):
            raise
        raise StorageError(f'"{path}" cannot be built: {_reason(error, scanned)}') from error


def _reason(error: OSError, scanned: Scan) -> str:
    """The system's message in one line, with the free disk space; HDF5's own message of it has several lines."""
    words = os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]
    return f"{words} (about {scanned.good_bytes} bytes are needed, {free_words(scanned.path)})"


def _facts(path: Path, scanned: Scan, built: WrittenFile) -> dict[str, Any]:
    """The fields of a ledger line; the file is read again, which also checks what was written."""
    head = scanned.head
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "file_blake3": file_hex(path),
        "epoch": int(head["epoch"]),
        "attempt": int(head.get("attempt", 1)),
        "rank": int(head.get("rank", 0)),
        "segment": int(head["segment"]) if head.get("segment") else None,
        "complete": built.complete,
        "reason": built.reason,
        "captures": built.captures,
        "captures_root": built.captures_root,
        "epoch_root": built.epoch_root,
        "series": stated(built.series, int(head["epoch"])),
        "remarks": built.remarks,
    }


def _check_same(entry: LedgerLine, path: Path, scanned: Scan) -> None:
    """Refuse to remove a journal whose file is in the ledger, but is missing or was not built from the journal.

    It is built once more to see that: a journal of the same place and size may hold other captures.
    """
    if not path.exists():
        raise StorageError(f'"{path}" is in the ledger, but not in the directory; the journal "{scanned.path}" is kept')
    is_same = entry.captures == len(scanned.captures) and _is_of(path, scanned)
    if not is_same or _built_again(path, scanned) != entry.captures_root:
        raise StorageError(f'"{path}" was not built from "{scanned.path}"; move the journal to another directory and recover again')


def _built_again(path: Path, scanned: Scan) -> str:
    """The captures root of the file that a journal gives."""
    temporary = path.with_name(temporary_name(path.name))
    try:
        _clear(path)
        return write_capture_file(scanned, temporary, None, ignore_progress).captures_root
    except OSError as error:
        if isinstance(error, ProbesError):
            raise
        raise StorageError(f'"{scanned.path}" cannot be compared with "{path}": {_reason(error, scanned)}; it is kept') from error
    finally:
        temporary.unlink(missing_ok=True)


def _clear(path: Path) -> None:
    """Remove what an interrupted seal has left of a file under other names."""
    for left in path.parent.glob(f"{path.name}*"):
        if final_name(left.name) == path.name:
            left.unlink(missing_ok=True)


def _check_unfinished(path: Path, scanned: Scan) -> None:
    """Refuse to replace a file without a ledger line, unless sealing it was interrupted by a kill."""
    if path.stat().st_size and not _is_of(path, scanned):
        raise StorageError(f'"{path}" is not in the ledger and belongs to another run; move it to another directory and recover again')


def _is_of(path: Path, scanned: Scan) -> bool:
    """Whether a file states the same run, epoch, attempt and rank as a journal."""
    try:
        found = open_file(path).attributes()
    except FileRefused:
        return False
    defaults = {"run_id": "", "epoch": 0, "attempt": 1, "rank": 0, "segment": 0}
    return all(found.get(name) == (scanned.head.get(name) or default) for name, default in defaults.items())


def main(directory: Path) -> None:
    """Seal each journal named on stdin, until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the training process; this process finishes its work
    answers = os.dup(1)
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    with closing(JournalSealer(directory)) as seals:
        _obey(seals, answers)


def _obey(seals: JournalSealer, answers: int) -> None:
    for line in sys.stdin.buffer:
        order = json.loads(line)
        if "quit" in order:
            if "claim" in order:
                _release(seals.directory / order["claim"], order["descriptor"])
            return
        try:
            answer = asdict(seals.seal(order["journal"], order.get("options")))
        except (ProbesError, OSError) as error:
            answer = {"journal": order["journal"], "error": str(error), "kind": type(error).__name__}
        _answer(answers, answer_line(answer))


def _release(claim: Path, descriptor: int) -> None:
    """Remove the claim that the training process has left to this one, unless another process has taken it over."""
    if _is(claim, descriptor):
        claim.unlink(missing_ok=True)


def _answer(descriptor: int, line: bytes) -> None:
    try:
        os.write(descriptor, line)
    except BrokenPipeError:
        return  # nobody reads the answers any more, but the journals still have to be sealed


if __name__ == "__main__":
    main(Path(sys.argv[1]))
