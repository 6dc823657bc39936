"""Forgeries by a person who knows the formats and wants the result to verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from probes.digest import blake3_hex, canonical
from tests.proof.runs import Change, One, small, write_run

LEDGER = "ledger.jsonl"


def other(one: One, epoch: int) -> One:
    """The same capture with other numbers."""
    return one._replace(bits=one.bits + 1)


OTHER: Change = other


def lines(run: Path, ledger: str = LEDGER) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / ledger).read_bytes().splitlines()]


def chained(run: Path, entries: list[dict[str, Any]], ledger: str = LEDGER) -> None:
    """Write a ledger whose lines follow each other, whatever they state."""
    previous, out = "0" * 64, []
    for index, entry in enumerate(entries):
        out.append(canonical({**entry, "index": index, "previous": previous}))
        previous = blake3_hex(out[-1])
    (run / ledger).write_bytes(b"".join(line + b"\n" for line in out))


def stated(run: Path, ledger: str = LEDGER, at: int = -1, **changes: Any) -> None:
    """Change what one line states, and repair the chain."""
    entries = lines(run, ledger)
    entries[at] |= changes
    chained(run, entries, ledger)


def listed(run: Path, name: str, like: int = -1, ledger: str = LEDGER, **changes: Any) -> None:
    """Append a line for a file that is there, with its true size and hash."""
    data = (run / name).read_bytes()
    entries = lines(run, ledger) if (run / ledger).exists() else []
    about = {**lines(run)[like], "file": name, "bytes": len(data), "file_blake3": blake3_hex(data), **changes}
    chained(run, [*entries, about], ledger)


def earlier(run: Path, ledger: str = LEDGER) -> None:
    """Write the lines as release 0.1 did."""
    chained(
        run,
        [{**{key: line[key] for key in line.keys() - {"series", "remarks"}}, "format": "ledger.v1"} for line in lines(run, ledger)],
        ledger,
    )


def attempt(run: Path, number: int = 2, epochs: int = 1, **options: Any) -> None:
    """A later attempt with other numbers, as a real run would have written it."""
    write_run(run, epochs=epochs, source=small, attempt=number, change=OTHER, **options)


def restated(run: Path, name: str, ledger: str = LEDGER, **attributes: Any) -> None:
    """Change attributes of the root of a file, and repair every digest and the ledger."""
    with h5py.File(run / name, "r+") as file:
        for key, value in attributes.items():
            file.attrs.modify(key, value)
        found = {key: _plain(value) for key, value in file.attrs.items() if key not in ("described", "digest")}
        file.attrs.modify("described", np.bytes_(blake3_hex(canonical(found)).encode()))
    data = (run / name).read_bytes()
    entries = lines(run, ledger)
    for entry in entries:
        if entry["file"] == name:
            entry |= {"bytes": len(data), "file_blake3": blake3_hex(data)}
            entry |= {key: value for key, value in attributes.items() if key in entry}
    chained(run, entries, ledger)


def _plain(value: Any) -> Any:
    plain = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    return plain.decode() if isinstance(plain, bytes) else plain
