"""Journals that chain, but whose JSON says what no writer says: nothing but a clear refusal may come of them."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import numpy as np

from probes.journal.record import HEADER_BYTES, RecordKind, extent_place, link, pack_fields, parse_header, place, seal_header
from tests.reader.recorded import KEY, Recording
from tests.torture.power_loss import spread
from tests.torture.report import SMALL, Effort, Row

JOURNALS = 10_000
WEIRD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 3.5, 1e308, 2**31, 2**63, 2**64, 10**30),
    *("", "x", "\x00", "../..", [], {}, [1], {"a": 1}, ["x"] * 70),
)

Piece = tuple[int, int, bytes, int]


def rows(effort: Effort) -> Iterator[Row]:
    """One row."""
    with effort.row("journals whose JSON was changed") as row:
        total, parts = effort.count(JOURNALS, 100), 4 if effort.share > SMALL else 1
        tasks = [(effort.folder / f"heads-{part}", f"{effort.seed} {part}", -(-total // parts)) for part in range(parts)]
        outcomes: dict[str, int] = {}
        for found, problems in spread(_tried, tasks):
            outcomes = {key: outcomes.get(key, 0) + found.get(key, 0) for key in outcomes | found}
            row.count.problems += problems
        row.trials = sum(outcomes.values())
        row.note = (
            f"{outcomes.get('refused', 0):,} refused, {outcomes.get('sealed', 0):,} harmless; no traceback in open, recover and verify"
        )
    yield row


def _tried(task: tuple[Path, str, int]) -> tuple[dict[str, int], list[str]]:
    folder, seed, count = task
    sound = pieces(_original(folder / "sound"))
    outcomes = {"refused": 0, "sealed": 0}
    problems: list[str] = []
    for index in range(count):
        chance = Random(f"{seed} {index}")
        run = folder / "run"
        run.mkdir()
        (run / "epoch-0000.journal").write_bytes(forge(_mutated(sound, chance)))
        try:
            outcomes["sealed" if _handled(run) else "refused"] += 1
        except Exception:  # any failure is a finding
            problems.append(f"journal {seed} {index}: {traceback.format_exc(limit=-3)}")
            outcomes["refused"] += 1
        shutil.rmtree(run)
    return outcomes, problems


def _original(folder: Path) -> Path:
    recording = Recording(folder, 0)
    for step in range(3):
        recording.take(np.full((2, 3), step, "<f4"), step=step)
        recording.take(np.full((40_000,), step, "<f4"), key=KEY._replace(target="wide"), step=step)
        recording.ids(step, [step, step + 1])
    return recording.left(ended=True)


def _handled(run: Path) -> bool:
    """Open, recover and verify a run; whether its journal could be sealed."""
    from probes.errors import ProbesError
    from probes.proof.verify import verify
    from probes.run_directory.recover import recover

    looks: tuple[Callable[[Path], Any], ...] = (_read, recover, verify, _read)
    for look in looks:
        with suppress(ProbesError):
            look(run)
    return (run / "epoch-0000.h5").exists()


def _read(run: Path) -> None:
    from probes.reader.run import open as open_run

    opened = open_run(run)
    assert opened.state is not None
    assert opened.manifest is not None
    assert opened.spec is not None
    for series in opened.series:
        assert len(list(series)) == len(series)
        assert series.attrs is not None
        assert series.dims is None or series.dims


def pieces(path: Path) -> list[Piece]:
    """The records of a journal: (kind, flags, body, checked bytes)."""
    raw, at, found = path.read_bytes(), 0, []
    while at + HEADER_BYTES <= len(raw):
        parsed = parse_header(raw[at : at + HEADER_BYTES])
        if parsed is None:
            break
        header, _ = parsed
        found.append((header.kind, header.flags, raw[at + HEADER_BYTES : at + HEADER_BYTES + header.length], header.checked))
        end = at + HEADER_BYTES + header.length
        at = place(end) if raw[place(end) : place(end) + 4] == b"PRJ1" else extent_place(end)
    return found


def forge(records: list[Piece]) -> bytes:
    """A journal of records that chains, whatever they say."""
    raw = bytearray()
    seed = crc32(_nonce(records[0][2]))
    for sequence, (kind, flags, body, checked) in enumerate(records):
        at = extent_place(len(raw)) if kind == RecordKind.EXTENT else place(len(raw))
        fields = pack_fields(kind, flags, sequence, len(body), checked, bytes(32))
        seed = link(seed, fields, (body[:checked],))
        raw += bytes(at - len(raw)) + seal_header(fields, seed) + body
    return bytes(raw)


def _nonce(head: bytes) -> bytes:
    try:
        return bytes.fromhex(json.loads(head)["nonce"])
    except (ValueError, TypeError, KeyError):
        return bytes(16)


def _mutated(records: list[Piece], chance: Random) -> list[Piece]:
    """One record of JSON changed: HEAD mostly, else a DESCRIPTOR or END."""
    texts = [index for index, record in enumerate(records) if record[0] in (RecordKind.HEAD, RecordKind.DESCRIPTOR, RecordKind.END)]
    index = 0 if chance.random() < 0.6 else chance.choice(texts)
    kind, flags, body, _ = records[index]
    value = json.loads(body)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        value = _changed(value, chance)
    text = json.dumps(value).encode()
    return [*records[:index], (kind, flags, text, len(text)), *records[index + 1 :]]


def _changed(value: Any, chance: Random) -> Any:
    """A JSON value with one thing in it another one, missing, or too much."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        rest = {name: one for name, one in value.items() if name != key}
        match chance.randrange(4):
            case 0:
                return rest
            case 1:
                return {**rest, key + chance.choice(["", "x", " "]): chance.choice(WEIRD)}
            case _:
                return {**rest, key: _changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        at = chance.randrange(len(value))
        return [*value[:at], *([_changed(value[at], chance)] * chance.randrange(3)), *value[at + 1 :]]
    return chance.choice(WEIRD)
