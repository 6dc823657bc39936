"""The page about edits, run as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import probes
from probes.capture_file.read import SealedFile
from tests.pages import ROOT, script


def test_the_blocks_of_the_page_run_and_store_what_was_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    blocks = script("readme").blocks((ROOT / "docs" / "edits.md").read_text(encoding="utf-8"))
    spec, steer = (block.text for block in blocks if block.language == "yaml")
    monkeypatch.chdir(tmp_path)
    Path("edits.yaml").write_text(spec, encoding="utf-8")
    Path("steer.yaml").write_text(steer, encoding="utf-8")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.Linear(4, 8)
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.hidden(x)))

    model = Model()
    names = {
        "probes": probes,
        "model": model,
        "cross_entropy": cross_entropy,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "direction": torch.ones(8),
        "batches": [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(3)],
    }
    for block in blocks:
        if block.language == "python":
            exec(block.text, names)
    assert sorted(path.name for path in Path("runs").iterdir()) == ["mixed", "steered"]
    closing = SealedFile(Path("runs/steered/epoch-0000.h5")).document("closing")
    assert [row["step"] for row in closing["given"]["set"]] == [0, 1, 2]
    read = probes.open("runs/mixed")
    assert len(read["mixup", "hidden", "edit.lam"].numpy()) == 3
    assert torch.equal(read["after", "hidden.weight"].torch(), 2 * read["before", "hidden.weight"].torch())
