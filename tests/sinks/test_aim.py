"""Metrics and artifacts, read back from Aim's own repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import probes
from probes.sinks.aim import Aim
from probes.testing import check_sink
from tests.sinks.recorded import expected, trained

aim = pytest.importorskip("aim", reason="aim is not installed; the extra `aim` brings it")
pytestmark = pytest.mark.filterwarnings("ignore")  # of its own packages


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository; making it takes Aim some seconds."""
    return tmp_path_factory.mktemp("aim")


def runs(repo: Path, experiment: str) -> list[Any]:
    """The runs of an experiment, as Aim's server lists them after it has indexed them."""
    from aim.sdk.index_manager import RepoIndexManager

    opened = aim.Repo(str(repo))
    index = RepoIndexManager.get_index_manager(opened)
    for chunk in (repo / ".aim" / "meta" / "chunks").iterdir():
        index.index(chunk.name)
    return [run for run in opened.iter_runs() if run.experiment == experiment]


def points(run: Any) -> dict[str, list[tuple[int, float]]]:
    """(step, number) of each metric, in the order of the steps."""
    found = {}
    for metric in run.metrics():
        table = metric.dataframe()
        found[metric.name] = sorted(zip(table["step"].tolist(), table["value"].tolist(), strict=True), key=lambda pair: pair[0])
    return found


def test_the_sink_passes_the_conformance_kit(repo: Path) -> None:
    check_sink(Aim(repo=str(repo), experiment="kit"))


def test_aim_has_the_numbers_of_the_capture_files_and_leads_back_to_them(tmp_path: Path, repo: Path) -> None:
    trained(tmp_path / "run", {"kind": "aim", "repo": str(repo), "experiment": "numbers", "wait": 60})
    (run,) = runs(repo, "numbers")
    found = {name: row for name, row in points(run).items() if not name.startswith(("counts", "eval/counts"))}
    assert {name: str(row) for name, row in found.items()} == {name: str(row) for name, row in expected(tmp_path / "run").items()}
    known = run["probes"]
    assert run.name == "digits"
    assert not run.active
    assert known["probes.run_id"] == probes.open(tmp_path / "run").manifest["run_id"]
    assert probes.verify(tmp_path / "run", anchor=known["probes.ledger_head"]).ok
    assert known["probes.verify"] == f"probes verify {tmp_path / 'run'} --anchor {known['probes.ledger_head']}"
    assert {path.name for path in (repo / "probes" / run.hash).iterdir()} == {"run.json", "spec.yaml", "ledger.jsonl"} == {*run.artifacts}
    assert (tmp_path / "run" / "aim.txt").read_text().splitlines()[-1] == run.hash, "from the run directory to the tracker"


def test_a_resumed_run_continues_in_the_same_run_of_aim(tmp_path: Path, repo: Path) -> None:
    import torch

    spec = {
        "version": 1,
        "sinks": {"captures": {"kind": "hdf5"}, "tracker": {"kind": "aim", "repo": str(repo), "experiment": "resumed", "wait": 60}},
        "probes": {"size": {"hook": "forward", "modules": [""], "transforms": [{"kind": "norm"}]}},
    }
    for _ in range(2):
        model = torch.nn.Linear(2, 2)
        with probes.attach(model, spec, out=tmp_path / "run", resume=True) as run, run.epoch(run.next_epoch):
            for _ in run.steps(range(2)):
                model(torch.ones(1, 2))
    (found,) = runs(repo, "resumed")
    assert [step for step, _ in points(found)["size/_root_/output"]] == [0, 1, 2, 3]
