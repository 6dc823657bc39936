"""The file that Weights & Biases writes offline, read back by its own reader."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probes
from probes.sinks.wandb import Wandb
from probes.testing import check_sink
from tests.sinks.recorded import expected, trained

wandb = pytest.importorskip("wandb", reason="wandb is not installed; the extra `wandb` brings it")
pytestmark = pytest.mark.filterwarnings("ignore")  # of its own packages


HEADER, BLOCK = struct.Struct("<IHB"), 32768  # checksum, length and type of a part; the last block of a file is shorter


def records(folder: Path) -> list[Any]:
    """All records of the one offline run below a folder: a log as LevelDB has it, of messages in protobuf."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.rglob("*.wandb")
    content, at, found, parts = path.read_bytes(), 7, [], b""
    assert content[:4] == b":W&B"
    while at < len(content):
        if BLOCK - at % BLOCK < HEADER.size:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = HEADER.unpack_from(content, at)
        parts += content[at + HEADER.size : at + HEADER.size + length]
        at += HEADER.size + length
        if kind in (1, 4):  # a whole record, or the last part of one
            found.append(wandb_internal_pb2.Record.FromString(parts))
            parts = b""
    return found


def test_the_sink_passes_the_conformance_kit(tmp_path: Path) -> None:
    check_sink(Wandb(mode="offline", dir=str(tmp_path)))


def test_wandb_has_the_numbers_of_the_capture_files_and_leads_back_to_them(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    trained(tmp_path / "run", {"kind": "wandb", "mode": "offline", "dir": str(tmp_path / "w")})
    found: dict[str, list[tuple[int, float]]] = {}
    for record in records(tmp_path / "w"):
        if record.WhichOneof("record_type") == "history":
            row = {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
            for name, value in row.items():
                found.setdefault(name, []).append((row["global_step"], float(value)))
    for name, points in expected(tmp_path / "run").items():
        np.testing.assert_array_equal(found[name.replace("+inf", "posinf").replace("-inf", "neginf")], points)
    opened = probes.open(tmp_path / "run")
    (started,) = [record.run for record in records(tmp_path / "w") if record.WhichOneof("record_type") == "run"][:1]
    assert started.run_id == opened.manifest["run_id"]
    text = [record.summary for record in records(tmp_path / "w") if record.WhichOneof("record_type") == "summary"]
    summary = {item.key: json.loads(item.value_json) for one in text for item in one.update}
    assert probes.verify(tmp_path / "run", anchor=summary["probes.ledger_head"]).ok
