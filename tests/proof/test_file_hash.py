from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from blake3 import blake3

from probes.proof import file_hash
from probes.proof.file_hash import hashes, prefix_hex


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 8192, 8193, 20_000])
def test_the_hash_of_a_file_read_in_any_pieces_is_that_of_its_bytes(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_hash, "SLICE_BYTES", 4096)
    content = random.Random(size).randbytes(size)
    path = tmp_path / "file"
    path.write_bytes(content + b"more")
    assert prefix_hex(path, size) == blake3(content).hexdigest()
    path.write_bytes(content)
    assert prefix_hex(path, size + 5000) == blake3(content).hexdigest()  # it became shorter after its size was read
    assert hashes(path, wanted=True) == (blake3(content).hexdigest(), hashlib.sha256(content).hexdigest())
    assert hashes(path, wanted=False).sha256 == ""
