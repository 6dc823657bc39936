"""Write a line of JSON for each step."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from probes.component import Reading, Sink, SinkContext, SinkSession
from probes.plain_file import HeldDescriptor
from probes.sinks.kernels.run_file import open_to_append

PATTERN = r"^(?!ledger)[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.jsonl$"
BLOCK = 1 << 16


def _inside(path: str) -> str:
    """Refuse a name with folders, or of a file that the run itself writes."""
    if not re.fullmatch(PATTERN, path):
        message = '"{path}" is not a valid name of a file in the run directory: letters, digits, _ and -, then .jsonl'
        hint = (
            "this name is reserved for the ledger of the run; write log.jsonl"
            if path.startswith("ledger")
            else "write a name such as log.jsonl"
        )
        raise PydanticCustomError("sink_path", message, {"path": path, "hint": hint})
    return path


Name = Annotated[str, AfterValidator(_inside), Field(json_schema_extra={"pattern": PATTERN})]


class Jsonl(Sink):
    """Appends small captures to a JSON Lines file in the run directory, one line per committed step, for trackers and scripts.

    A line has `epoch`, `phase`, `step`, `global_step` and `values`; `values` maps `probe/target/leaf/label` to a number.
    """

    kind: Literal["jsonl"] = "jsonl"
    path: Name = Field(default="log.jsonl", description="Name of the file in the run directory, without folders, ending in .jsonl.")
    max_elements: int = Field(
        default=64, ge=1, le=4096, description="Largest number of elements of a capture; a larger capture is refused."
    )

    def most_elements(self) -> int:
        """`max_elements`."""
        return self.max_elements

    def files(self) -> tuple[str, ...]:
        """`path`."""
        return (self.path,)

    def open(self, context: SinkContext) -> SinkSession:
        """Open the file to append to it.

        Raises:
            OSError: it cannot be opened, is a link, or is not a plain file.
        """
        return _LinesFile(context.files[0])


class _LinesFile:
    """A file to which the lines of each step are appended in one write."""

    def __init__(self, path: Path) -> None:
        self.file = HeldDescriptor(open_to_append(path, _end))

    def step(self, readings: Sequence[Reading]) -> None:
        """Append the lines of one step; if the disk is full, remove the part that was written."""
        text = "".join(f"{line}\n" for line in lines(readings)).encode()
        before = self.file.require().st_size
        try:
            while text:
                text = text[os.write(self.file.number, text) :]
        except OSError:
            os.ftruncate(self.file.number, before)
            raise

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _end(handle: int, size: int) -> int:
    """The offset after the last complete line of a file; a line without a line feed is not complete."""
    while size:
        start = max(size - BLOCK, 0)
        found = os.pread(handle, size - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        size = start
    return 0


def lines(readings: Sequence[Reading]) -> list[str]:
    """The lines for the readings of a commit: one for its step, and one for each earlier step whose captures arrived late."""
    steps: dict[tuple[int, str, int], dict[str, Any]] = {}
    for reading in readings:
        clock = reading.clock
        line = steps.setdefault(clock[:3], _head(reading))
        line["values"] |= {_name(reading, label): number for label, number in reading.numbers.items()}
    return [json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) for line in steps.values()]


def _head(reading: Reading) -> dict[str, Any]:
    clock = reading.clock
    known = {"global_step": clock.global_step} if clock.global_step >= 0 else {}
    late = {"late": True} if reading.late else {}
    return {"epoch": clock.epoch, "phase": clock.phase, "step": clock.step, **known, **late, "values": {}}


def _name(reading: Reading, label: str) -> str:
    """`probe/target/leaf/label`, and the number of the call where it is not the first of its step."""
    key, clock = reading.key, reading.clock
    place = [key.probe, _escaped(key.target) or ".", _escaped(key.leaf), *([label] if label else [])]
    times = (("microstep", clock.microstep), ("call", clock.call), ("backward", clock.backward))
    return "/".join([*place, *(f"{name}-{count}" for name, count in times if count > 0)])


def _escaped(text: str) -> str:
    """A path without slashes, which separate the parts of the name."""
    return text.replace("%", "%25").replace("/", "%2F")
