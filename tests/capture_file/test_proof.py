"""The vectors of `schemas/proof.v1.md`, with nothing but BLAKE3, JSON and struct."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from blake3 import blake3

from probes.clock import SeriesKey
from probes.digest import canonical, captures_root, epoch_root, root_of_segments

TEXT = (Path(__file__).parents[2] / "schemas" / "proof.v1.md").read_text("utf-8")
KEY = ("acts", "features.0", "output", "train")
GAP = ["acts", "fc", "output", "train", "frozen", 2]


def text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def series() -> str:
    block = blake3(struct.pack("<12f", *range(12))).digest()
    clocks = struct.pack("<IIiIII", 3, 0, 0, 0, 0, 0) + struct.pack("<IIiIII", 3, 1, 0, 0, 0, 0)
    shapes = struct.pack("<IQQ", 2, 2, 3) * 2
    head = dict(zip(("probe", "target", "leaf", "phase"), KEY, strict=True)) | {"dtype": "float32", "captures": 2, "blocks": 1}
    assert f"`{text(head).decode()}`" in TEXT
    assert f"`{block.hex()}`" in TEXT
    return blake3(text(head) + b"\n" + clocks + shapes + block).hexdigest()


def test_the_vectors_follow_from_the_text() -> None:
    root = blake3(text({"series": [[*KEY, "float32", series()]], "gaps": [GAP]})).hexdigest()
    facts = {"captures_root": root, "spec": "aa", "structure": "bb", "weights": None, "code": "cc", "environment": "dd"}
    facts |= {"counts": {"captures": 2, "steps": {"train": 2}}, "complete": True}  # type: ignore[dict-item]  # nested plain data
    whole = blake3(text(facts)).hexdigest()
    segments = blake3(text({"segments": [root, root]})).hexdigest()
    assert f"`{text(facts).decode()}`" in TEXT
    for found in (series(), root, whole, segments):
        assert f"`{found}`" in TEXT
    assert captures_root([(SeriesKey(*KEY), "float32", series())], [(SeriesKey(*GAP[:4]), "frozen", 2)]) == root  # type: ignore[arg-type]  # texts stand for keys
    assert epoch_root(facts) == whole
    assert root_of_segments([root, root]) == segments
    assert canonical(facts) == text(facts)
