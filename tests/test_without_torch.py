"""Commands that work without torch, and the message of the others; a torch that cannot be imported simulates a missing one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import probes
from probes import optional_package
from probes.cli import verbs
from probes.errors import MissingExtra
from probes.optional_package import require_torch
from tests.pages import ROOT

INSTALL = 'pip install "torch-probes[torch]"'
SPEC = "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1]}\n"
SERIES = "the first series of the run"
WORKING = {
    "check": ["check", "probe.yaml"],
    "fmt": ["fmt", "--check", "probe.yaml"],
    "schema": ["schema"],
    "explain": ["explain", "unknown-key"],
    "plugins": ["plugins"],
    "presets": ["presets", "gradient-flow"],
    "ls": ["ls", "sealed"],
    "show": ["show", "sealed", SERIES],
    "report": ["report", "sealed"],
    "watch": ["watch", "sealed", "--once"],
    "upload": ["upload", "sealed", "memory://copy"],
    "diff": ["diff", "sealed", "sealed"],
    "export": ["export", "sealed", "--manifest"],
    "verify": ["verify", "sealed"],
    "anchor": ["anchor", "sealed", "--file", "head.txt"],
    "recover": ["recover", "killed", "--take-over", "--unproven", "include"],
    "init": ["init", "--preset", "gradient-flow", "--out", "first.yaml"],
}
"""A call of each verb that works without torch; each in the folder of `desk`."""

NEEDING = {
    "run": ["run", "probe.yaml", "train.py"],
    "coverage": ["coverage", "train.py"],
    "neutral": ["neutral", "probe.yaml", "train.py"],
    "tree": ["tree", "--model", "train.py:model"],
    "plan": ["plan", "probe.yaml", "--model", "train.py:model"],
    "replay": ["replay", "sealed", "--yes"],
    "demo": ["demo"],
}
"""A call of each verb that needs torch, which says so."""
BLOCKED = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "einops"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
from probes.cli import cli
answers = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli(words, prog_name="probes")
        except SystemExit as ended:
            code = ended.code or 0
    answers.append([code, out.getvalue(), err.getvalue()])
exec(sys.argv[2])
print(json.dumps([answers, extra]))
"""
READ = """
import probes
from probes.errors import MissingExtra

def asked(call):
    try:
        return repr(call())
    except MissingExtra as error:
        return f"MissingExtra: {error}"

run = probes.open("sealed")
series = run.series[0]
extra = {
    "shape": list(series.rows().shape),
    "verified": probes.verify("sealed").ok,
    "spec": list(probes.load("probe.yaml").spec.probes),
    "attach": asked(lambda: probes.attach(None, "probe.yaml")),
    "resolve": asked(lambda: probes.resolve("probe.yaml", None)),
    "testing": asked(lambda: __import__("probes.testing")),
    "torch": asked(lambda: series.torch()),
}
"""


def answers(folder: Path, commands: list[list[str]], then: str = "extra = None") -> tuple[list[Any], Any]:
    """What commands answer in one interpreter that has no torch: exit code, stdout and stderr of each; and what the code leaves."""
    words = [sys.executable, "-c", BLOCKED, json.dumps(commands), dedent(then)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found[0], found[1]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with two sealed runs, one that was killed, a spec and a script."""
    with tarfile.open(ROOT / "tests" / "release_corpus" / "v0.1.0.tar.xz") as archive:
        archive.extractall(tmp_path / "corpus", filter="data")
    killed, sealed = "killed-process", "pair-a"
    shutil.copytree(tmp_path / "corpus" / killed, tmp_path / "killed")
    shutil.copytree(tmp_path / "corpus" / sealed, tmp_path / "sealed")
    (tmp_path / "probe.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / "train.py").write_text("import torch\n", encoding="utf-8")
    return tmp_path


def test_everything_except_capturing_works_and_capturing_reports_what_to_install(desk: Path) -> None:
    series = str(probes.open(desk / "sealed").series[0].key)
    working = {verb: [series if word is SERIES else word for word in words] for verb, words in WORKING.items()}
    found, extra = answers(desk, [*working.values(), *NEEDING.values()], READ)
    for (verb, words), (code, out, err) in zip((working | NEEDING).items(), found, strict=True):
        if verb in working:
            assert code == 0, f"{words} ended with {code}\n{out}\n{err}"
            continue
        assert (code, out) == (3, ""), f"{words} ended with {code}\n{out}\n{err}"
        assert err.startswith("error: ")
        assert err.count("\n") == 1, err
        assert INSTALL in err, err
    assert extra["verified"]
    assert extra["spec"] == ["acts"]
    for name in ("attach", "resolve", "testing", "torch"):
        assert extra[name].startswith("MissingExtra"), extra[name]
        assert INSTALL in extra[name]


def test_every_verb_is_tried_without_torch() -> None:
    assert {*WORKING, *NEEDING} == set(verbs()), "add a call of the verb to WORKING or NEEDING"


def test_torch_that_is_too_old_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("2.5.1+cu121", "1.13"):
        monkeypatch.setattr(optional_package, "_torch_version", lambda version=version: version)
        with pytest.raises(MissingExtra, match=r"needs torch 2\.6 or later, and torch " + version.replace("+", r"\+")):
            require_torch("capturing")
    for version in ("2.6.0", "2.10.0a0+git123", "3.0", "", "unknown"):
        monkeypatch.setattr(optional_package, "_torch_version", lambda version=version: version)
        require_torch("capturing")


def test_a_folder_named_torch_is_not_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch" / "checkpoints").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(MissingExtra, match="not installed"):
        require_torch("capturing")


def test_requirements_of_capturing_are_only_in_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = ".".join(map(str, optional_package.OLDEST_TORCH))
    assert project["optional-dependencies"]["torch"] == [f"torch>={oldest}"]
    assert not [name for name in project["dependencies"] if name.startswith("torch")]
