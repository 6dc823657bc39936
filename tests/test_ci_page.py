"""The instructions of docs/ci.md, executed in a repository with the digits example."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.pages import ROOT, script
from tests.warm import programs


def page(language: str) -> list[str]:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    return [block.text for block in script("readme").blocks(text) if block.language == language]


def bash(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    identity = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = os.pathsep.join([str(programs.commands()), str(Path(sys.executable).parent), os.environ["PATH"]])
    warm = {"WARM_PYTHON": str(programs.commands() / "python")}  # `replay` starts the script by it
    known = os.environ | identity | warm | {"PATH": path, "OMP_NUM_THREADS": "2", "GITHUB_STEP_SUMMARY": "summary.md"}
    return subprocess.run(["bash", "-euc", command], cwd=folder, env=known, capture_output=True, text=True, check=False)


def check(command: str, folder: Path) -> None:
    done = bash(command, folder)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a script, a spec, a baseline, and the roots of the baseline."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("train.py", "probe.yaml"):
        shutil.copyfile(ROOT / "examples" / "digits" / name, folder / name)
    check("git init --quiet && mkdir tests && git add . && git commit --quiet --message first", folder)
    for block in page("sh"):
        check(block, folder)
    check("git add . && git commit --quiet --message roots", folder)
    return folder


def steps() -> list[str]:
    """The commands of the workflow, without what the runner installs."""
    workflow = yaml.safe_load(page("yaml")[0])
    return [step["run"] for step in workflow["jobs"]["replay"]["steps"] if "run" in step and not step["run"].startswith("pip")]


def test_a_pull_request_that_changes_nothing_of_the_captures_passes(repository: Path, tmp_path: Path) -> None:
    work = Path(shutil.copytree(repository, tmp_path / "work"))
    check("echo '# a comment' >> train.py && git commit --quiet --all --message comment", work)
    verify, replay, _ = steps()
    check(verify, work)
    done = bash(replay, work)
    assert done.returncode == 0, done.stderr
    assert "changed since the recording: script train.py" in done.stderr
    assert (work / "divergence.md").read_text().startswith("### Captures are the same")


def test_a_pull_request_that_changes_captures_fails_and_shows_where(repository: Path, tmp_path: Path) -> None:
    work = Path(shutil.copytree(repository, tmp_path / "work"))
    check("sed -i 's/default=0.05/default=0.0501/' train.py && git commit --quiet --all --message faster", work)
    _, replay, show = steps()
    assert bash(replay, work).returncode == 1
    check(show, work)
    summary = (work / "summary.md").read_text()
    assert summary.startswith("### Captures are different")
    assert "epoch 0, step 1: " in summary
    assert "`code.sha256`" in summary
    shutil.rmtree(work / "replayed")
    roots = yaml.safe_load(page("yaml")[1])[0]["run"]
    for path in (work / "tests" / "baseline").glob("*"):
        if path.name not in ("run.json", "spec.yaml"):
            path.unlink()
    done = bash(f"{roots} --json", work)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["verdict"] == "different"
