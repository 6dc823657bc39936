"""Ranks whose program calls no model: they load data or only wait; others may capture what the spec asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import probes
from tests import independent_verifier
from tests.proof.test_second_language import answers
from tests.script.conftest import Outcome, Probed

TRAINS = """
    net = Net()
    optimizer = SGD(net.parameters(), lr=0.1)
    for x, in loader(4, 2):
        step(net, optimizer, x)
"""
WAITS = "pass\n"

Ranks = Callable[[Sequence[str]], list[Outcome]]


@pytest.fixture
def ranks(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """Programs of the ranks of a launch, one after the other in the order in which they are given, numbered from the last one down."""

    def run(programs: Sequence[str]) -> list[Outcome]:
        found = []
        for rank, text in reversed([*enumerate(reversed(programs))]):
            for name, value in {"RANK": rank, "WORLD_SIZE": len(programs), "TORCHELASTIC_RUN_ID": "job"}.items():
                monkeypatch.setenv(name, str(value))
            found.append(probed(text))
        return found

    return run


@pytest.mark.parametrize("programs", [(TRAINS, WAITS), (WAITS, TRAINS), (WAITS, TRAINS, WAITS)])
def test_a_rank_that_calls_no_model_is_not_an_error_if_another_one_captures(ranks: Ranks, programs: tuple[str, ...]) -> None:
    done = ranks(programs)
    assert [one.code for one in done] == [0] * len(programs), [one.said for one in done]
    waiting = [one for one, text in zip(done, programs, strict=True) if text is WAITS]
    assert all("the program called no model in this process" in one.said for one in waiting)
    assert ["head of the run" in one.said for one in done] == [False] * (len(programs) - 1) + [True]
    run = probes.open(done[0].out)
    assert len(run["acts", "fc"]) == 2
    assert any("no file of epoch 0, as" in line for line in run.not_shown)
    assert run.state == {0: "complete"}
    assert probes.verify(done[0].out).ok
    assert independent_verifier.verifies(done[0].out)
    assert shutil.which("node") is None or answers([(done[0].out, "")]) == [""]
    for path in done[0].out.glob("end.*"):  # the notes tell such ranks from those that were lost
        path.unlink()
    assert "incomplete" in probes.open(done[0].out).state.values()
    assert not probes.verify(done[0].out).ok


def test_a_launch_in_which_no_rank_calls_a_model_fails_at_its_end(ranks: Ranks) -> None:
    done = ranks((WAITS, WAITS))
    assert [one.code for one in done] == [0, 1]
    assert "no rank captured anything" in done[1].said


def test_one_process_that_calls_no_model_fails(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    done = probed(WAITS)
    assert done.code == 1
    assert "called no model" in done.said
    assert not done.out.exists()


@pytest.mark.torture  # a process of its own
def test_a_rank_that_does_not_import_torch_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text("print('idle')\n")
    (tmp_path / "p.yaml").write_text("version: 1\nprobes: {acts: {hook: forward, modules: [fc]}}\n")
    about = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job"}
    words = [sys.executable, "-m", "probes", "run", "--out", "run", "p.yaml", "idle.py"]
    done = subprocess.run(words, cwd=tmp_path, env=about, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "did not import torch" in done.stderr
