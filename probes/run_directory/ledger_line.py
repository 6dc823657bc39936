"""One line of a ledger: a file that was sealed, and the line before it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from probes.digest import blake3_hex, canonical
from probes.errors import UsageError
from probes.run_directory.file_name import parse_stem

FORMAT = "ledger.v1"
FIRST = "0" * 64
Number = Annotated[int, Field(ge=0, lt=1 << 32)]
Size = Annotated[int, Field(ge=0, lt=1 << 63)]
Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class LedgerLine(BaseModel):
    """One line: a file that was sealed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: str = Field(default=FORMAT, pattern="^ledger[.]v1$", description="Name and version of this format.")
    index: Size = Field(description="Number of the line, from 0.")
    previous: Hex = Field(description="BLAKE3 of the line before, without its end; zeros for the first.")
    file: str = Field(description="Name of the sealed file.")
    bytes: Size = Field(description="Its size.")
    file_blake3: Hex = Field(description="BLAKE3 of its bytes.")
    epoch: Number = Field(description="Number of the epoch.")
    attempt: Number = Field(description="Attempt at the epoch, from 1.")
    rank: Number = Field(description="Rank of the process.")
    segment: Number | None = Field(description="Number of the segment, from 1; null where the epoch is one file.")
    complete: bool = Field(description="Whether the epoch, or the segment, came to its end.")
    reason: str = Field(description="Why not.")
    captures: Size = Field(description="How many captures the file holds.")
    captures_root: Hex = Field(description="Digest of everything captured.")
    epoch_root: Hex = Field(description="Digest of that together with what it came from.")
    supersedes: str | None = Field(description="The file of an earlier attempt that this one takes the place of, or null.")

    @property
    def digest(self) -> str:
        """What the next line names as `previous`; for the last line it is the head of the ledger."""
        return blake3_hex(line(self))


def misplaced(entry: LedgerLine, ledger: str) -> str:
    """What a line states differently from the name of its file or of its ledger; an empty text where they agree.

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
    return canonical(entry.model_dump())


def split(content: bytes) -> tuple[list[bytes], bytes]:
    """The whole lines of a ledger, and what is behind them: a line that a kill or a loss of power has left half written."""
    *lines, rest = content.split(b"\n")
    if lines and b"\0" in lines[-1]:  # its end came to the device, and a part before did not
        rest = lines.pop() + b"\n" + rest
    return lines, rest
