"""Anchors that sinks have left in trackers; the trackers are stand-ins with the calls of the real packages that are used."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probes.proof.anchors import tracker
from probes.proof.verify import verify
from tests.proof.anchors.places import recorded, said


@pytest.fixture
def tags(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The tags of the run `a` of each tracker."""
    known: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name.rpartition("/")[2].removeprefix("probes-") != "a":
            raise RuntimeError("\x1b[2J404")
        return SimpleNamespace(data=SimpleNamespace(tags=known), config=known, summary=known, metadata=known)

    def stored(_project: str, name: str, _version: None) -> dict[str, Any] | None:
        return {"metadata": known} if name == "probes-a" else None

    packages = {
        "mlflow": SimpleNamespace(MlflowClient=lambda: SimpleNamespace(get_run=of)),
        "wandb": SimpleNamespace(Api=lambda: SimpleNamespace(run=of)),
        "trackio": None,
        "trackio.sqlite_storage": SimpleNamespace(SQLiteStorage=SimpleNamespace(get_artifact_manifest=stored)),
    }
    monkeypatch.setattr(tracker, "import_optional", lambda name, extra, purpose: packages[name])
    return known


@pytest.mark.parametrize("place", ["mlflow:a", "wandb:e/p/a", "trackio:p/a"])
def test_the_head_in_a_tracker_is_an_anchor_of_its_run_only(tmp_path: Path, tags: dict[str, Any], place: str) -> None:
    run = recorded(tmp_path / "run")
    tags |= {tracker.HEAD: verify(run).head, tracker.RUN: "r"}
    assert said("verify", run, "--anchor", place)[1].endswith("as anchored\n")
    tags[tracker.RUN] = "another"
    assert said("verify", run, "--anchor", place)[0] == 1
    tags |= {tracker.HEAD: "0" * 64, tracker.RUN: "r"}
    code, output = said("verify", run, "--anchor", place)
    assert (code, "error[ledger-rolled-back]" in output) == (1, True)
    tags[tracker.HEAD] = "x"
    assert said("verify", run, "--anchor", place)[0] == 1
    del tags[tracker.HEAD]
    assert said("verify", run, "--anchor", place)[0] == 2, "its program has not ended"
    code, output = said("verify", run, "--anchor", f"{place}b")
    assert (code, "\x1b" in output) == (2, False)
