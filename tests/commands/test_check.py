from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from probes.cli import cli
from probes.spec import load_spec
from probes.spec.yaml.reader import read
from tests.pages import ROOT
from tests.regenerate import COMMAND, REFUSED, SPECS, said

GOOD = "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1]}\n"
BAD = "version: 1\nprobes:\n  acts: {hook: forward, modul: [fc1]}\n  more: {hook: forwrd, modules: [fc1]}\n"


def check(*words: str) -> Result:
    return CliRunner().invoke(cli, ["check", *words])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD, "utf-8")
    (tmp_path / "bad.yaml").write_text(BAD, "utf-8")
    return tmp_path


@pytest.mark.parametrize("path", sorted((SPECS / "valid").glob("*.yaml")), ids=lambda path: path.stem)
def test_valid_specs_are_accepted(path: Path) -> None:
    result = check(str(path))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_a_wrong_spec_gives_the_recorded_errors(path: Path) -> None:
    assert said(path) == path.with_suffix(".txt").read_text("utf-8"), f"read it, then run: {COMMAND}"


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_a_wrong_spec_ends_with_2_and_leaves_stdout_empty(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    result = check(path.name)
    assert result.exit_code == 2
    assert not result.stdout
    assert result.stderr == path.with_suffix(".txt").read_text("utf-8")


def test_a_valid_spec_is_reported_in_a_line(folder: Path) -> None:
    result = check("good.yaml")
    assert result.stdout.startswith("good.yaml: ok, 1 probe, identity ")
    assert not result.stderr


def test_an_unknown_preset_is_a_problem_among_those_of_the_other_specs(folder: Path) -> None:
    result = check("--json", "preset:nothing", "bad.yaml", "good.yaml")
    assert result.exit_code == 2
    assert [(one["spec"], one["ok"]) for one in json.loads(result.stdout)["specs"]] == [
        ("preset:nothing", False),
        ("bad.yaml", False),
        ("good.yaml", True),
    ]


def test_the_worst_of_several_specs_decides(folder: Path) -> None:
    assert check("good.yaml", "bad.yaml", "absent.yaml").exit_code == 2
    assert check("good.yaml", "absent.yaml").exit_code == 3


def test_json_of_a_bad_spec_holds_places_and_codes(folder: Path) -> None:
    result = check("--json", "good.yaml", "bad.yaml")
    data = json.loads(result.stdout)
    good, bad = data["specs"]
    assert (data["ok"], good["ok"], bad["ok"]) == (False, True, False)
    assert [(problem["code"], problem["line"], problem["column"]) for problem in bad["problems"]] == [
        ("unknown-key", 3, 25),
        ("bad-choice", 4, 16),
    ]
    assert set(bad["problems"][0]) == {"code", "message", "hint", "file", "line", "column", "width", "source", "path"}
    assert set(good) == {"spec", "ok", "problems", "files", "identity"}
    assert good["files"][0]["name"] == "good.yaml"
    assert result.exit_code == 2


def test_resolved_shows_defaults_variables_and_overrides(folder: Path) -> None:
    (folder / "resolved.yaml").write_text(
        'version: 1\nvars: {n: 10}\ndefaults: {when: {steps: {every: "${n}"}}}\nprobes:\n  acts: {hook: forward, modules: [fc1]}\n', "utf-8"
    )
    result = check("--resolved", "--set", "vars.n=25", "resolved.yaml")
    assert read(result.stdout.encode(), "stdout").data["probes"]["acts"]["when"]["steps"] == {"every": 25}
    assert json.loads(check("--resolved", "--json", "resolved.yaml").stdout)["specs"][0]["resolved"]["version"] == 1


def test_resolved_states_the_origin_of_every_value(folder: Path) -> None:
    (folder / "base.yaml").write_text("on_error: raise\nprobes:\n  acts: {modules: [fc1]}\n", "utf-8")
    text = "version: 1\nextends: [base.yaml]\ndefaults: {when: {steps: {every: 10}}}\nprobes:\n  acts:\n    hook: forward\n"
    (folder / "child.yaml").write_text(text, "utf-8")
    result = check("--resolved", "--set", "about=why", "child.yaml")
    lines = [re.sub(" +", " ", line).strip() for line in result.stdout.splitlines()]
    for line in (
        "version: 1 # child.yaml:1",
        "name: child # the file's name",
        "about: why # --set about",
        "hook: forward # child.yaml:6",
        "modules: [fc1] # base.yaml:3",
        "steps: {every: 10} # child.yaml:3",
        "phases: [train] # default",
        "on_error: raise # base.yaml:1; not part of the identity",
        "durability: process # default; not part of the identity",
    ):
        assert line in lines
    assert read(result.stdout.encode(), "stdout").data == load_spec(folder / "child.yaml", overrides=["about=why"]).data


def test_set_file_gives_overrides_that_set_wins_over(folder: Path) -> None:
    (folder / "changes").write_text("# a comment\n\nname=one\nprobes.acts.enabled=true\n", "utf-8")
    result = check("--resolved", "--set-file", "changes", "--set", "name=two", "good.yaml")
    assert read(result.stdout.encode(), "stdout").data["name"] == "two"


def test_a_missing_set_file_is_an_error_of_the_environment(folder: Path) -> None:
    assert check("--set-file", "absent", "good.yaml").exit_code == 3


def test_annotations_for_github_escape_characters_that_would_end_them(folder: Path) -> None:
    (folder / "percent.yaml").write_text('version: 1\nprobes:\n  "a:b,c%": {hook: forward, modules: [fc1]}\n', "utf-8")
    result = check("--format", "github", "percent.yaml")
    assert result.stdout.startswith("::error file=percent.yaml,line=3,col=3,endColumn=11,title=probes name::`a:b,c%25` is not a name")


def test_a_problem_of_an_extended_file_is_named_there(folder: Path) -> None:
    (folder / "over.yaml").write_text("version: 1\nextends: [bad.yaml]\nprobes: {}\n", "utf-8")
    assert "bad.yaml:3:25: error[unknown-key]" in check("over.yaml").stderr


def test_a_spec_with_transforms_is_checked_without_torch(folder: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] in ('torch', 'numpy', 'h5py'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
        "from probes.cli import main\n"
        f"sys.argv = ['probes', 'check', *{[str(path) for path in sorted((SPECS / 'valid').glob('*.yaml'))]!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted((SPECS / "valid").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_printed_resolved_spec_is_that_spec(path: Path) -> None:
    result = check("--resolved", str(path))
    assert read(result.stdout.encode(), "stdout").data == load_spec(path).data


def test_other_yaml_files_are_skipped_on_request(folder: Path) -> None:
    (folder / "compose.yaml").write_text("version: '3.9'\nservices: {}\n", "utf-8")
    (folder / "grad.yaml").write_text("probes:\n  a: {modules: [fc1}\n", "utf-8")
    assert check("--skip-others", "compose.yaml", "good.yaml").exit_code == 0
    assert check("compose.yaml", "good.yaml").exit_code == 2
    assert check("--skip-others", "compose.yaml", "grad.yaml").exit_code == 2
    assert check("--skip-others", "absent.yaml").exit_code == 3
    assert not check("--skip-others", "compose.yaml").output


def test_the_hooks_for_pre_commit_run_commands_that_exist(folder: Path) -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert [hook["id"] for hook in hooks] == ["probes-check", "probes-fmt"]
    for hook in hooks:
        assert hook["types"] == ["yaml"]
        assert "files" not in hook
        program, *words = hook["entry"].split()
        assert program == "probes"
        done = CliRunner().invoke(cli, [*words, "good.yaml"])
        assert done.exit_code == 0, done.output
