"""Metrics, read back from MLflow's own database."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import probes
from probes.sinks.mlflow import Mlflow
from probes.testing import check_sink
from tests.sinks.recorded import expected, trained

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed; the extra `mlflow` brings it")
pytestmark = pytest.mark.filterwarnings("ignore")  # of its own packages

PROOF = {"run.json", "spec.yaml", "ledger.jsonl"}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database; making it takes MLflow some seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/store.db"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Artifacts of an experiment without a place of its own go into the working directory."""
    monkeypatch.chdir(tmp_path)


def read(client: Any, run: Any) -> dict[str, list[tuple[int, float]]]:
    return {name: sorted((one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)) for name in run.data.metrics}


def test_the_sink_passes_the_conformance_kit(uri: str) -> None:
    check_sink(Mlflow(uri=uri))


def test_mlflow_has_the_numbers_of_the_capture_files_and_leads_back_to_them(tmp_path: Path, uri: str) -> None:
    trained(tmp_path / "run", {"kind": "mlflow", "uri": uri, "experiment": "numbers", "wait": 60})
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("numbers").experiment_id])
    found = {name: points for name, points in read(client, run).items() if not name.startswith(("counts", "eval/counts"))}
    wanted = expected(tmp_path / "run")
    assert found.keys() == {name.replace("+inf", "posinf").replace("-inf", "neginf") for name in wanted}
    top = 1.7976931348623157e308  # its database has no infinity
    for name, points in wanted.items():
        stored = found[name.replace("+inf", "posinf").replace("-inf", "neginf")]
        for (step, value), (at, number) in zip(stored, points, strict=True):
            assert step == at
            assert value == max(min(number, top), -top) or (math.isnan(number) and (math.isnan(value) or value == 0))
    assert probes.verify(tmp_path / "run", anchor=run.data.tags["probes.ledger_head"]).ok
    assert run.data.tags["probes.run_id"] == probes.open(tmp_path / "run").manifest["run_id"]
    assert (run.info.run_name, run.info.status) == ("digits", "FINISHED")
    # There and back: the command of the tag verifies, and the run ID of the files finds the run of the tracker.
    assert run.data.tags["probes.verify"] == f"probes verify {tmp_path / 'run'} --anchor {run.data.tags['probes.ledger_head']}"
    identity = probes.open(tmp_path / "run").manifest["run_id"]
    (found_again,) = client.search_runs([run.info.experiment_id], f"tags.`probes.run_id` = '{identity}'")
    assert found_again.info.run_id == run.info.run_id


@pytest.mark.parametrize(("artifacts", "wanted"), [("proof", PROOF), ("all", {*PROOF, "epoch-0000.h5", "epoch-0001.h5"}), ("none", set())])
def test_files_that_verify_a_run_are_its_artifacts(tmp_path: Path, uri: str, artifacts: str, wanted: set[str]) -> None:
    client = mlflow.MlflowClient(tracking_uri=uri)
    place = client.create_experiment(f"files-{artifacts}", artifact_location=str(tmp_path / "store"))
    trained(tmp_path / "run", {"kind": "mlflow", "uri": uri, "experiment": f"files-{artifacts}", "wait": 60, "artifacts": artifacts})
    (run,) = client.search_runs([place])
    assert {Path(one.path).name for one in client.list_artifacts(run.info.run_id, "probes")} == wanted
    if artifacts == "all":
        copy = tmp_path / "copy"
        client.download_artifacts(run.info.run_id, "probes", str(tmp_path))
        (tmp_path / "probes").rename(copy)
        assert probes.verify(copy, anchor=run.data.tags["probes.ledger_head"]).ok


def test_the_active_run_of_the_program_gets_the_metrics_and_continues(tmp_path: Path, uri: str) -> None:
    mlflow.set_tracking_uri(uri)
    with mlflow.start_run() as active:
        trained(tmp_path / "run", {"kind": "mlflow", "uri": uri, "wait": 60}, epochs=1)
        run = mlflow.get_run(active.info.run_id)
        assert run.info.status == "RUNNING"
        assert run.data.metrics["size/0/output/count"] == 15.0


def test_an_unreachable_server_does_not_affect_captures_and_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    run = trained(tmp_path / "run", {"kind": "mlflow", "uri": "http://127.0.0.1:9", "wait": 20})
    assert len(probes.open(tmp_path / "run").sel(phase="train")["size", "0"]) == 6
    assert probes.verify(tmp_path / "run").ok
    assert str(run.summary()).count("sink `tracker` failed and was disabled: MlflowException") == 1
    assert capsys.readouterr().err.count("sink `tracker` failed") == 1
