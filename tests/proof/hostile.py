"""Runs whose files say what no run says: every value of ledger, manifest, closing record and attributes may be anything."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.proof.forger import chained, lines

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63, 2**64 - 1, 10**30, 1.5, -0.0, 1e308, "", "x", "\x00", "\ud800", "\u202e\x1b[2J\n", "../../x",
    "9" * 5000,
    [], {}, [[]], [None], [1, 2], {"a": {"b": []}}, [["a", "b", "c", "d", "e", 1]], [["a"] * 6], {"steps": -1}, {"steps": {"train": "x"}},
    [[[[[[[[[[]]]]]]]]]],
)  # fmt: skip
TEXTS = ("spec", "resolved", "manifest", "closing", "gaps")
RAW = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"[" * 5000,
    b"{" * 70 + b"}" * 70,
    b'{"a":1e999}',
    b"NaN",
    b'{"a":' + b"9" * 5000 + b"}",
    b'"\\ud800"',
    b"null",
)


def changed(value: Any, chance: random.Random, depth: int = 0) -> Any:
    """A value with one part of it replaced, removed or doubled."""
    if isinstance(value, dict) and value and (depth == 0 or chance.random() < 0.8):
        key = chance.choice(sorted(value))
        rest = {name: one for name, one in value.items() if name != key}
        return rest if chance.random() < 0.1 else {**rest, key: changed(value[key], chance, depth + 1)}
    if isinstance(value, list) and value and (depth == 0 or chance.random() < 0.8):
        at = chance.randrange(len(value))
        return [*value[:at], changed(value[at], chance, depth + 1), *value[at + 1 :]]
    return chance.choice(VALUES)


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _in_ledger(run: Path, chance: random.Random) -> None:
    entries = lines(run)
    entries[-1] = changed(entries[-1], chance)
    try:
        chained(run, [one if isinstance(one, dict) else {} for one in entries])
    except (ValueError, TypeError):
        (run / "ledger.jsonl").write_bytes(_text(entries[-1]) + b"\n")


def _in_json_file(run: Path, name: str, chance: random.Random) -> None:
    found = changed(json.loads((run / name).read_bytes()), chance)
    (run / name).write_bytes(chance.choice(RAW) if chance.random() < 0.2 else _text(found))


def _in_text(run: Path, chance: random.Random) -> None:
    name = chance.choice(TEXTS)
    with h5py.File(run / "epoch-0000.h5", "r+") as file:
        old = file[name][()]
        new = chance.choice(RAW) if name in ("spec", "resolved") or chance.random() < 0.2 else _text(changed(json.loads(old), chance))
        del file[name]
        file.create_dataset(name, data=np.bytes_(new))


def _in_attribute(run: Path, chance: random.Random) -> None:
    with h5py.File(run / "epoch-0000.h5", "r+") as file:
        places: list[Any] = [file]
        file.visititems(lambda _, found: places.append(found))
        owner = chance.choice(places)
        name = chance.choice([*owner.attrs, "more"])
        value = chance.choice([0, -1, 2**31, 1.5, float("nan"), "", "x\x1b[2J\n", "\u202e", [1, 2], ["a", "b"], b"\xff\xfe", 2**63 - 1])
        if name not in ("DIMENSION_LIST", "REFERENCE_LIST"):
            owner.attrs.create(name, np.bytes_(value.encode()) if isinstance(value, str) else value)


def _in_dataset(run: Path, chance: random.Random) -> None:
    with h5py.File(run / "epoch-0000.h5", "r+") as file:
        places: list[Any] = []
        file.visititems(lambda _, found: places.append(found) if isinstance(found, h5py.Dataset) else None)
        owner = chance.choice(places)
        name, parent = owner.name, owner.parent
        kind = chance.choice(["u1", "i8", "f8", "S3", "u4"])
        shape = chance.choice([(), (0,), (1,), (3,), (2, 2), (0, 0), (1, 1, 1, 1)])
        del parent[name]
        if chance.random() < 0.8:
            parent.create_dataset(name, data=np.zeros(shape, kind) if kind == "S3" else np.full(shape, chance.choice([0, 1, 255]), kind))


def _in_bytes(run: Path, name: str, chance: random.Random) -> None:
    data = bytearray((run / name).read_bytes())
    for _ in range(chance.choice([1, 1, 4, 64])):
        data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    (run / name).write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.2 else data)


def mutate(run: Path, seed: int) -> str:
    """Change a run in one of the ways, chosen by the seed; returns which."""
    chance = random.Random(seed)
    ways = {
        "ledger": lambda: _in_ledger(run, chance),
        "manifest": lambda: _in_json_file(run, "run.json", chance),
        "text": lambda: _in_text(run, chance),
        "attribute": lambda: _in_attribute(run, chance),
        "dataset": lambda: _in_dataset(run, chance),
        "bytes": lambda: _in_bytes(run, "epoch-0000.h5", chance),
        "ledger bytes": lambda: _in_bytes(run, "ledger.jsonl", chance),
        "journal": lambda: _in_bytes(run, "epoch-0001.journal", chance),
    }
    name = chance.choice(sorted(ways))
    if name in ("text", "attribute", "dataset", "bytes", "journal") and chance.random() < 0.5:
        (run / "ledger.jsonl").unlink()  # so that readers look into the file though its hash is another
    ways[name]()
    return name
