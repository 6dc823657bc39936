"""Whole scripts in the styles of real repositories: the right model, the right clock, the right bytes, and nothing changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import probes
from tests.loops.compare import captured_rows, difference, disagreements, expected_rows, files, is_run
from tests.loops.forks import Ended, Forks
from tests.loops.known_failures import reason
from tests.loops.truth import Truth, truths

ALL = list(truths())
PARAMETERS = [pytest.param(each, id=str(each), marks=[pytest.mark.xfail(reason=why)] if (why := reason(str(each))) else []) for each in ALL]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    found = Forks()
    yield found
    found.close()


class Alone:
    """A script's run without probes, once for all its specs."""

    def __init__(self, forks: Forks, folder: Path) -> None:
        self.forks = forks
        self.folder = folder
        self.run = cache(self._run)

    def _run(self, style: str, arguments: tuple[str, ...]) -> tuple[Ended, dict[str, Any], dict[str, str]]:
        folder = self.folder / "-".join([style, *arguments])
        put(style, folder)
        log = folder.with_suffix(".json")
        ended = self.forks.without_probes(folder, log, "train.py", *arguments)
        return ended, json.loads(log.read_text()), files(folder)


@pytest.fixture(scope="module")
def alone(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return Alone(forks, tmp_path_factory.mktemp("alone"))


def put(style: str, folder: Path) -> None:
    """Lay a script into a folder as `train.py`."""
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "scripts" / f"{style}.py", folder / "train.py")


@pytest.mark.parametrize("truth", [pytest.param(each, id=str(each)) for each in ALL])
def test_the_truth_by_hand_fits_the_calls_of_the_script(truth: Truth, alone: Alone) -> None:
    ended, log, _ = alone.run(truth.style, truth.arguments)
    assert ended.code == truth.data.get("code", 0), ended.err
    assert truth.data.get("refused") or disagreements(truth, log) == []


@pytest.mark.parametrize("truth", PARAMETERS)
def test_a_script_is_captured_as_its_truth_says(truth: Truth, alone: Alone, forks: Forks, tmp_path: Path) -> None:
    before, log, left = alone.run(truth.style, truth.arguments)
    put(truth.style, tmp_path / "work")
    (tmp_path / "probe.yaml").write_text(json.dumps(truth.spec(), indent=1))  # JSON is YAML without anchors
    out = tmp_path / "run"
    options = [] if truth.data.get("out") == "default" else ["--out", str(out)]
    after = forks.with_probes(tmp_path / "work", "run", *options, str(tmp_path / "probe.yaml"), "train.py", *truth.arguments)
    if not options:
        out = next(iter((tmp_path / "work" / "runs").glob("*/*")), out)
    wrong = refusals(truth, after) if truth.data.get("refused") else list(faults(truth, before, log, out, after))
    left_after = files(tmp_path / "work")
    if left_after != left:
        wrong.append(f"files differ: {sorted({*left.items()} ^ {*left_after.items()})}")
    if wrong:
        pytest.fail("\n".join([*wrong, after.err]), pytrace=False)


def faults(truth: Truth, before: Ended, log: dict[str, Any], out: Path, after: Ended) -> Iterator[str]:
    """What is wrong with a run, a line or a few for each kind."""
    for probe in truth.spec()["probes"]:
        if lines := difference(expected_rows(truth, log, probe), captured_rows(out, probe, truth.target)):
            yield f"{probe}: {lines}"
    if after.code != (code := truth.data.get("exit", before.code)):
        yield f"exit code {after.code}, due {code}"
    if after.out != before.out:
        yield f"stdout differs:\n{after.out}instead of\n{before.out}"
    epochs = range(max(len(truth.epochs("train")), len(truth.epochs("eval"))))
    due = {epoch: "incomplete" if epoch in truth.incomplete else "complete" for epoch in epochs}
    state = probes.open(out).state if is_run(out) else {}
    if state != due:
        yield f"epochs are {state}, due {due}"
    yield from (f"not said: {said}" for said in truth.data.get("says", ()) if said not in after.err)


def refusals(truth: Truth, after: Ended) -> list[str]:
    """What is wrong with a refusal: its exit code, or a word that would have helped."""
    wrong = [f"not said: {said}" for said in truth.data["refused"] if said not in after.err]
    return wrong if after.code == 2 else [f"exit code {after.code}, due 2", *wrong]
