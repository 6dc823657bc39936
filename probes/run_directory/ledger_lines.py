"""The lines of a ledger: their fields, and whether together they keep the rule in `schemas/run-directory.v1.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probes.digest import blake3_hex, canonical
from probes.errors import FileRefused, UsageError
from probes.plain_file import plain_object, read_plain
from probes.run_directory.file_name import ledger_files, parse_stem

FORMAT = "ledger.v2"
EARLIER = "ledger.v1"
ADDED = {"series", "remarks"}  # keys that lines of `EARLIER` do not have
FIRST = "0" * 64
Number = Annotated[int, Field(ge=0, lt=1 << 32)]
Size = Annotated[int, Field(ge=0, lt=1 << 63)]
Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class SeriesRow(BaseModel):
    """An entry of a ledger line on one series of one dtype in its file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    probe: str = Field(description="Name of the probe.")
    target: str = Field(description="Path of the module, parameter or buffer.")
    leaf: str = Field(description="Path of the value.")
    phase: str = Field(description="Name of the phase.")
    dtype: str = Field(description="Name of the dtype.")
    captures: Size = Field(description="How many captures there are.")
    shape: list[Size | None] | None = Field(description="Sizes of a capture, null for one that differs; null if the axes differ in number.")
    dims: list[str] | None = Field(description="Names of the axes, or null.")
    bytes: Size = Field(description="Bytes of the captures, uncompressed.")
    epochs: list[Number] | None = Field(description="Epochs of the captures, ascending; null if that is the epoch of the line alone.")


class LedgerLine(BaseModel):
    """One line: a file that was sealed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: str = Field(default=FORMAT, pattern="^ledger[.]v[12]$", description="Name and version of this format.")
    index: Size = Field(description="Number of the line, from 0.")
    previous: Hex = Field(description="BLAKE3 of the line before, without its end; zeros for the first.")
    file: str = Field(description="Name of the sealed file.")
    bytes: Size = Field(description="Its size.")
    file_blake3: Hex = Field(description="BLAKE3 of its bytes.")
    epoch: Number = Field(description="Number of the epoch.")
    attempt: Number = Field(description="Attempt at the epoch, from 1.")
    rank: Number = Field(description="Rank of the process.")
    segment: Number | None = Field(description="Number of the segment, from 1; null if the epoch is one file.")
    complete: bool = Field(description="Whether the epoch, or the segment, is complete.")
    reason: str = Field(description="Why not.")
    captures: Size = Field(description="How many captures the file holds.")
    captures_root: Hex = Field(description="Digest of everything captured.")
    epoch_root: Hex = Field(description="Digest of the captures root together with spec, model, code and environment.")
    supersedes: str | None = Field(description="The file of an earlier attempt that this one replaces, or null.")
    series: list[SeriesRow] | Size | None = Field(
        default=None, description="The series of the file; the number of an earlier line that lists the same; null if that was too long."
    )
    remarks: bool = Field(default=True, description="Whether its closing record has missing values, events of triggers or broken rules.")

    @property
    def digest(self) -> str:
        """The hash that the next line states as `previous`; that of the last line is the head of the ledger."""
        return blake3_hex(line(self))


def misplaced(entry: LedgerLine, ledger: str) -> str:
    """The differences between a line and the name of its file or ledger; an empty text if they agree.

    Args:
        entry: the line.
        ledger: name of the ledger that it is in.
    """
    try:
        stem = parse_stem(entry.file)
    except UsageError:
        return f'"{entry.file}" is not the name of a capture file'
    if not entry.file.endswith(".h5"):
        return f'"{entry.file}" is not the name of a capture file'
    if stem.ledger != ledger:
        return f'"{entry.file}" belongs in the ledger "{stem.ledger}"'
    named = {"epoch": stem.epoch, "attempt": stem.attempt, "segment": stem.segment or None, "rank": stem.rank or 0}
    wrong = [f"{name} {getattr(entry, name)}" for name, value in named.items() if getattr(entry, name) != value]
    return f'"{entry.file}" is not the name of a file of {" and ".join(wrong)}' if wrong else ""


def line(entry: LedgerLine) -> bytes:
    """The bytes of a ledger line, without the end of the line."""
    return canonical(entry.model_dump(exclude=ADDED if entry.format == EARLIER else None))


def series_rows(entries: Sequence[LedgerLine], entry: LedgerLine) -> list[SeriesRow] | None:
    """The series of a line, stated by itself or by reference to an earlier line; None if it has none.

    Args:
        entries: every line of its ledger.
        entry: one of them.
    """
    found = entries[entry.series].series if isinstance(entry.series, int) and entry.series < len(entries) else entry.series
    return None if isinstance(found, int) else found


def split(content: bytes) -> tuple[list[bytes], bytes]:
    """The whole lines of a ledger, and the rest of it: a line that a kill or a loss of power left incomplete."""
    *lines, rest = content.split(b"\n")
    if lines and b"\0" in lines[-1]:  # the end of a line reached the device, and an earlier part of it did not
        rest = lines.pop() + b"\n" + rest
    return lines, rest


class Breach(NamedTuple):
    """A breach of the rule for what a run is.

    Attributes:
        code: one of `error_codes.PROOF`.
        file: name of the file, in the run directory.
        message: what was found.
    """

    code: str
    file: str
    message: str


class LedgerContents(NamedTuple):
    """A ledger that was read.

    Attributes:
        name: of the file.
        lines: every whole line; None if it is not a ledger line.
        heads: BLAKE3 of every line, as its bytes are.
        end: where the last whole line ends.
        torn: how many bytes follow it.
        breaches: what is wrong.
    """

    name: str
    lines: tuple[LedgerLine | None, ...]
    heads: tuple[str, ...]
    end: int
    torn: int
    breaches: tuple[Breach, ...]

    @property
    def entries(self) -> list[LedgerLine]:
        """The lines that could be read."""
        return [entry for entry in self.lines if entry is not None]


def read_ledger(path: Path) -> LedgerContents:
    """Read a ledger, and check each line and that it follows the one before.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        content = read_plain(path)
    except FileRefused as refused:
        return LedgerContents(path.name, (), (), 0, 0, (Breach(refused.code, path.name, refused.message),))
    texts, rest = split(content)
    breaches: list[Breach] = []
    lines: list[LedgerLine | None] = []
    for number, text in enumerate(texts, 1):
        found = _line(path.name, number, text)
        if isinstance(found, Breach):
            breaches.append(found)
        lines.append(found if isinstance(found, LedgerLine) else None)
    heads = tuple(map(blake3_hex, texts))
    breaches += _links(path.name, lines, heads)
    breaches += _places(path.name, lines)
    if not breaches:
        breaches += _references(path.name, lines)
    return LedgerContents(path.name, tuple(lines), heads, len(content) - len(rest), len(rest), tuple(breaches))


def read_ledgers(directory: Path) -> tuple[LedgerContents, ...]:
    """Read all ledgers of a run, by name.

    Raises:
        StorageError: one of them cannot be read.
    """
    return tuple(map(read_ledger, ledger_files(directory)))


def breaches(ledgers: Sequence[LedgerContents]) -> Iterator[Breach]:
    """All breaches of the rule by the ledgers of a run, in each and between them."""
    for ledger in ledgers:
        yield from ledger.breaches
    entries = [entry for ledger in ledgers for entry in ledger.entries]
    for name, count in Counter(entry.file for entry in entries).items():
        if count > 1:
            yield Breach("ledger-edited", name, "two lines of the ledger list it")
    names: dict[tuple[Any, ...], str] = {}
    cut: dict[tuple[int, int, int], bool] = {}
    for entry in entries:
        attempt = entry.epoch, entry.rank, entry.attempt
        if names.setdefault((*attempt, entry.segment), entry.file) != entry.file:
            yield Breach(
                "ledger-misplaced", entry.file, f'is of the same epoch, rank, attempt and segment as "{names[(*attempt, entry.segment)]}"'
            )
        if cut.setdefault(attempt, entry.segment is not None) != (entry.segment is not None):
            yield Breach("ledger-misplaced", entry.file, "its attempt has segments and also a file of the whole epoch")
    yield from _behind_the_end(entries)


def _behind_the_end(entries: Sequence[LedgerLine]) -> Iterator[Breach]:
    """Segments after the one that completed their epoch: a run never writes them, and they would add captures to the epoch."""
    ends: dict[tuple[int, int, int], LedgerLine] = {}
    for entry in entries:
        if entry.segment is not None and entry.complete:
            ends.setdefault((entry.epoch, entry.rank, entry.attempt), entry)
    for entry in entries:
        end = ends.get((entry.epoch, entry.rank, entry.attempt), entry)
        if (entry.segment or 0) > (end.segment or 0):
            yield Breach("ledger-misplaced", entry.file, f'is a segment after "{end.file}", with which the epoch was complete')


def require_sound(ledgers: Sequence[LedgerContents], directory: Path) -> None:
    """Refuse ledgers that break the rule for what a run is.

    Raises:
        FileRefused: one does; the message has the first breach.
    """
    for breach in breaches(ledgers):
        raise FileRefused(breach.code, f'"{directory / breach.file}": {breach.message}; `probes verify` lists everything that is wrong')


def _line(name: str, number: int, text: bytes) -> LedgerLine | Breach:
    try:
        found = plain_object(text)
        if str(found.get("format", FORMAT)) not in (FORMAT, EARLIER):
            return Breach("newer-format", name, f'line {number} has the format "{found["format"]}"; this release reads "{FORMAT}"')
        entry = LedgerLine.model_validate(found)
    except (ValueError, ValidationError):
        return Breach("ledger-edited", name, f"line {number} is not a ledger line")
    if line(entry) != text:
        return Breach("ledger-edited", name, f"line {number} is not in the canonical form of a ledger line")
    return entry


def _places(name: str, lines: Sequence[LedgerLine | None]) -> Iterator[Breach]:
    """Lines whose place differs from the name of their file, or from the ledger that contains them."""
    for number, entry in enumerate(lines, 1):
        if entry is not None and (wrong := misplaced(entry, name)):
            yield Breach("ledger-misplaced", name, f"line {number}: {wrong}")


def _references(name: str, lines: Sequence[LedgerLine | None]) -> Iterator[Breach]:
    """Lines that refer to the series of a line that is not before them, or that lists none."""
    for number, entry in enumerate(lines, 1):
        if entry is not None and isinstance(entry.series, int):
            earlier = lines[entry.series] if entry.series < number - 1 else None
            if earlier is None or not isinstance(earlier.series, list):
                yield Breach("ledger-edited", name, f"line {number} names line {entry.series + 1} for its series, which lists none")


def _links(name: str, lines: Sequence[LedgerLine | None], heads: Sequence[str]) -> list[Breach]:
    """Breaks of the chain: lines in another order, lines that are missing, or a line that changed."""
    whole = [entry for entry in lines if entry is not None]
    indices = [entry.index for entry in whole]
    if len(whole) == len(lines) and indices != sorted(indices) and sorted(indices) == list(range(len(indices))):
        return [Breach("ledger-reordered", name, f"the lines are in the order {', '.join(map(str, indices[:100]))}")]
    found: list[Breach] = []
    expected = 0
    for number, entry in enumerate(lines, 1):
        before = heads[number - 2] if number > 1 else FIRST
        if entry is None or (entry.index == expected and entry.previous == before):
            expected += 1
            continue
        found.append(_broken(name, number, entry, expected, before))
        expected = max(entry.index, expected) + 1
    return found


def _broken(name: str, number: int, entry: LedgerLine, expected: int, before: str) -> Breach:
    if entry.index > expected and entry.previous != before:
        lost = f"{entry.index - expected} lines were removed" if entry.index - expected > 1 else "a line was removed"
        return Breach("ledger-line-missing", name, f"{lost} before line {number} ({entry.file})")
    if entry.index != expected:
        return Breach("ledger-edited", name, f"line {number} ({entry.file}) has the number {entry.index}, not {expected}")
    place = f"line {number - 1}" if number > 1 else "line 1"
    return Breach(
        "ledger-edited", name, f"line {number} ({entry.file}) follows a line with the hash {entry.previous[:12]}; {place} changed"
    )


def head_of(ledgers: Sequence[LedgerContents]) -> str:
    """The head of a run: of its ledger, or over the heads of all its ledgers; empty if no ledger has a line."""
    return run_head({ledger.name: ledger.heads[-1] for ledger in ledgers if ledger.heads})


def run_head(heads: Mapping[str, str]) -> str:
    """The head over the heads of ledgers by name; with one ledger, its head."""
    return blake3_hex(canonical(dict(heads))) if len(heads) > 1 else next(iter(heads.values()), "")
