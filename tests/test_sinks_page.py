"""The page about sinks, run as it stands: a real run of digits whose log a tracker reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

import probes
from tests.pages import script
from tests.test_readme import lasting
from tests.warm import programs


def test_every_block_of_the_page_runs_and_prints_the_text_of_the_page(tmp_path: Path) -> None:
    sinks = script("sinks")
    sinks.readme.BIN = os.pathsep.join([str(programs.commands()), sinks.readme.BIN])
    assert lasting(sinks.page(tmp_path)) == lasting(sinks.PAGE.read_text(encoding="utf-8")), "run: make docs"
    lines = [json.loads(line) for line in (tmp_path / "runs" / "a" / "log.jsonl").read_text("utf-8").splitlines()]
    run = probes.open(tmp_path / "runs" / "a")
    assert [line["step"] for line in lines] == [0, 10, 20]
    assert [line["values"]["weight/classifier.weight/grad"] for line in lines] == run["weight", "classifier.weight"].numpy().tolist()
    stats = [line["values"]["logits/classifier/output/mean"] for line in lines]
    assert stats == run["logits", "classifier"].numpy()[:, 1].tolist()
