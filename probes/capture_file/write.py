"""Build the HDF5 file of a journal: metadata first, then one pass over the payloads, then digests and roots."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from errno import EIO
from pathlib import Path
from typing import Any

from probes.capture_file.closing import has_remarks
from probes.capture_file.codecs import Compression
from probes.capture_file.compressed_copy import copy_compressed
from probes.capture_file.grouped import JournalSeries, group_by_series, steps_in_order
from probes.capture_file.layout import FORMAT, Layout, PlacedSeries
from probes.capture_file.outline import SeriesOutline, outline_of_journal
from probes.capture_file.payload_copy import copy_payloads, write_all
from probes.capture_file.series_name import escape
from probes.clock import SeriesKey
from probes.digest import ALGORITHM, PROOF, Buffer, canonical, captures_root, file_root, root_of_epoch, series_hex, shape_row
from probes.journal.scan import Scan

OnProgress = Callable[[str], None]
Gap = tuple[SeriesKey, str, int]


def ignore_progress(point: str) -> None:
    """Ignore a point."""


@dataclass(frozen=True)
class WrittenFile:
    """The content of a built file.

    Attributes:
        complete: whether the journal says that its epoch came to an end.
        reason: why not.
        series: what each series is.
        captures: how many captures.
        captures_root: digest of everything captured.
        epoch_root: digest of that together with what it came from.
        remarks: whether the closing record has anything that a list of the run shows.
    """

    complete: bool
    reason: str
    series: tuple[SeriesOutline, ...]
    captures: int
    captures_root: str
    epoch_root: str
    remarks: bool


def write_capture_file(scan: Scan, path: Path, compression: Compression | None = None, passed: OnProgress = ignore_progress) -> WrittenFile:
    """Build the file of a journal and wait until it is on the device; the same journal gives the same bytes.

    Args:
        scan: what the journal holds.
        path: the file to make; must not exist.
        compression: how values are compressed, if at all.
        passed: called with the name of each point that is reached.

    Raises:
        OSError: the disk or the directory does not take the file.
    """
    try:
        layout = Layout(path, compression, len(scan.descriptors))
        try:
            built, own = _fill(layout, scan, path, compression, passed)
        except BaseException:  # the file is closed after any error; raised again
            with suppress(OSError, RuntimeError):  # the first error is more informative
                layout.close()
            raise
        layout.close()
        _write_file_root(path, own)
    except RuntimeError as error:
        raise _disk_error(error) from error
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return built


def _disk_error(error: RuntimeError) -> OSError:
    """The HDF5 library's message if the disk does not accept its data."""
    found = re.search(r"errno = (\d+)", str(error))
    number = int(found[1]) if found else EIO
    return OSError(number, os.strerror(number) if found else str(error).partition("\n")[0])


def _write_file_root(path: Path, without: list[range]) -> None:
    """Write the file root, which digests the rest of the file, to the first of the omitted places."""
    target = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        write_all(target, file_root(target, without).encode(), without[0].start)
    finally:
        os.close(target)


def _fill(layout: Layout, scan: Scan, path: Path, compression: Compression | None, passed: OnProgress) -> tuple[WrittenFile, list[range]]:
    """Write the content of a file; return its description, the place of its file root, and the places of the payloads."""
    series = group_by_series(scan)
    gaps = _gaps(scan)
    places = [layout.add(one) for one in series]
    _add_rest(layout, scan, gaps)
    own = layout.file_root()
    with _Files(scan.path, path) as files:
        passed("laid out")
        blocks = (
            copy_compressed(files.source, layout, places, compression) if compression else copy_payloads(files.source, files.target, places)
        )
        for offset, content in _columns(layout, places, blocks):
            write_all(files.target, content, offset)
    passed("transferred")
    digests = [_series_hex(one, digests) for one, digests in zip(series, blocks, strict=True)]
    for place, digest in zip(places, digests, strict=True):
        layout.write_digest(place, digest)
    built = _built(scan, series, digests, gaps)
    layout.attributes(layout.root, _root_attributes(scan, built))
    payloads = [range(place.offset, place.offset + int(place.series.sizes.sum())) for place in places if place.offset is not None]
    return built, [own, *payloads]


def verdict(scan: Scan) -> tuple[bool, str]:
    """Whether the epoch of a journal is complete, and if not, why; independent of who seals it."""
    if not scan.trusted:
        return False, f"{scan.left_out} were left out"
    if scan.end is None:
        return False, "the process ended in the middle of a write" if scan.state == "torn" else "the process ended before the epoch did"
    return bool(scan.end.get("complete")), str(scan.end.get("reason", ""))


class _Files:
    """The descriptors of journal and file; both are closed at the end of the block."""

    def __init__(self, source: Path, target: Path) -> None:
        self._paths = source, target

    def __enter__(self) -> _Files:
        source, target = self._paths
        self.source = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.target = os.open(target, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            os.close(self.source)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.source)
        os.close(self.target)


def _closing(scan: Scan) -> dict[str, Any]:
    return (scan.end or {}).get("closing") or {}


def _gaps(scan: Scan) -> list[Gap]:
    """The gaps of the epoch, sorted, one for each series and reason, as its steps reported them."""
    counts: Counter[tuple[SeriesKey, str]] = Counter()
    for _, annex in scan.annexes:
        for probe, target, leaf, phase, reason, count in annex.get("gaps", ()):
            counts[SeriesKey(probe, target, leaf, phase), reason] += count
    return [(key, reason, count) for (key, reason), count in sorted(counts.items())]


def _add_rest(layout: Layout, scan: Scan, gaps: list[Gap]) -> None:
    layout.captures()
    for phase, steps, ids in _sample_ids(scan):
        layout.add_ids(escape(phase), steps, ids)
    head = scan.head
    layout.texts(
        {
            "spec": str(head.get("spec", "")).encode(),
            "resolved": _json(head.get("resolved")),
            "manifest": _json(head.get("manifest") or {}),
            "closing": _json(_closing(scan)),
            "gaps": canonical([[*key, reason, count] for key, reason, count in gaps]),
            "order": canonical(steps_in_order(scan)),
        }
    )


def _json(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else canonical(value)


def _sample_ids(scan: Scan) -> Iterator[tuple[str, list[int], list[list[Any]]]]:
    """For each phase with sample ids: the steps, ascending, and their ids."""
    by_phase: dict[str, list[tuple[int, list[Any]]]] = {}
    for index, annex in scan.annexes:
        if annex.get("ids"):
            commit = scan.commits[index]
            by_phase.setdefault(scan.phases[commit["phase"]], []).append((int(commit["step"]), list(annex["ids"])))
    for phase, rows in sorted(by_phase.items()):
        rows.sort(key=lambda row: row[0])
        yield phase, [step for step, _ in rows], [ids for _, ids in rows]


def _columns(layout: Layout, places: list[PlacedSeries], blocks: list[bytes]) -> Iterator[tuple[int, Buffer]]:
    yield from layout.columns
    for place, digests in zip(places, blocks, strict=True):
        yield place.block_offset, digests


def _series_hex(series: JournalSeries, block_digests: bytes) -> str:
    rows = [shape_row(shape) for shape in series.shapes]
    shapes = b"".join([rows[index] for index in series.shape_of.tolist()])
    return series_hex(series.key, series.dtype, series.count, series.clocks.tobytes(), shapes, block_digests)


def _built(scan: Scan, series: tuple[JournalSeries, ...], digests: list[str], gaps: list[Gap]) -> WrittenFile:
    complete, reason = verdict(scan)
    captures = sum(one.count for one in series)
    root = captures_root([(one.key, one.dtype, digest) for one, digest in zip(series, digests, strict=True)], gaps)
    closing = _closing(scan)
    whole = root_of_epoch(scan.head.get("manifest") or {}, closing, root, captures, complete)
    return WrittenFile(complete, reason, tuple(map(outline_of_journal, series)), captures, root, whole, has_remarks(closing))


def _root_attributes(scan: Scan, built: WrittenFile) -> dict[str, Any]:
    head = scan.head
    return {
        "probes_format": FORMAT,
        "run_id": str(head.get("run_id", "")),
        "epoch": int(head["epoch"]),
        "attempt": int(head.get("attempt", 1)),
        "rank": int(head.get("rank", 0)),
        "segment": int(head.get("segment") or 0),
        "complete": built.complete,
        "reason": built.reason,
        "captures_root": built.captures_root,
        "epoch_root": built.epoch_root,
        "digest_algorithm": ALGORITHM,
        "proof": PROOF,
        "default": "captures",
        "NX_class": "NXroot",
        **({"first_step": int(head["first_step"])} if head.get("first_step") else {}),
    }
