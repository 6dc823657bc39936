"""Metrics and artifacts, read back from trackio's own database."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

import probes
from probes import optional_package
from probes.sinks.trackio import Trackio
from probes.testing import check_sink
from tests.sinks.recorded import expected, trained

pytestmark = pytest.mark.filterwarnings("ignore")  # of its own packages


def test_without_trackio_one_sentence_states_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(optional_package, "_is_installed", lambda package: package != "trackio")
    run = trained(tmp_path / "run", {"kind": "trackio"}, epochs=1)
    assert 'needs the package `trackio`; install it with: pip install "torch-probes[trackio]"' in str(run.summary())
    assert probes.verify(tmp_path / "run").ok


def test_trackio_has_the_numbers_of_the_capture_files_and_leads_back_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed; the extra `trackio` brings it")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "db"))
    trained(tmp_path / "run", {"kind": "trackio", "project": "numbers", "wait": 60})
    (database,) = (tmp_path / "db").rglob("numbers*.db")
    with sqlite3.connect(database) as store:
        rows = [(step, json.loads(text)) for step, text in store.execute("select step, metrics from metrics")]
        ((name, config),) = store.execute("select run_name, config from configs").fetchall()
        ((manifest, metadata),) = store.execute("select manifest, metadata from artifact_versions").fetchall()
    found: dict[str, list[tuple[int, float]]] = {}
    for step, values in rows:
        for key, value in values.items():
            found.setdefault(key, []).append((step, float(value)))
    for key, points in expected(tmp_path / "run").items():
        stored = found[key.replace("+inf", "posinf").replace("-inf", "neginf")]
        assert [str(one) for one in sorted(stored)] == [str(one) for one in sorted(points)]
    assert {one["path"] for one in json.loads(manifest)} == {"run.json", "spec.yaml", "ledger.jsonl"}
    known = json.loads(metadata)
    assert name == json.loads(config)["probes.run_id"] == probes.open(tmp_path / "run").manifest["run_id"]
    assert probes.verify(tmp_path / "run", anchor=known["probes.ledger_head"]).ok
    assert known["probes.verify"].endswith(known["probes.ledger_head"])


def test_the_sink_passes_the_conformance_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed; the extra `trackio` brings it")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "db"))
    check_sink(Trackio())
