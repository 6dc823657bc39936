from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from probes.commands.replay import replay as verb
from probes.errors import FileRefused, RunError, StorageError, UsageError
from probes.proof.replay import ExpectedRoot, replay
from probes.proof.replay_plan import changes, command, plan_replay, recorded, write_spec
from probes.run_directory.manifest import Manifest
from tests.warm import programs

SCRIPT = """
import sys
import torch
from torch import nn

torch.manual_seed(int(sys.argv[1]))
model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    loss = model(torch.randn(5, 4)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SPEC = 'version: 1\nprobes:\n  acts: {hook: forward, modules: ["0"]}\n'


@pytest.fixture(autouse=True)
def children_in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(programs.commands() / "python"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a script, a spec and a recorded run."""
    place = tmp_path_factory.mktemp("project")
    (place / "train.py").write_text(SCRIPT)
    (place / "spec.yaml").write_text(SPEC)
    words = ("-m", "probes", "run", "--out", "base", "--set", "defaults.when.steps.first=2", "spec.yaml", "train.py", "7")
    programs.run(*words, cwd=place, check=True)
    return place


@pytest.fixture
def project(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to which the recorded directory leads no more."""
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    monkeypatch.chdir(copy)
    return copy


def test_a_recorded_run_replays_the_same_bit_for_bit(made: Path, tmp_path: Path) -> None:
    found = replay(made / "base", tmp_path / "again", bitwise=True)
    assert found.same
    assert found.changes == ()
    assert found.difference is not None
    assert found.difference.counts["compared"] == 2


def test_the_command_of_a_plan_names_the_spec_without_a_place_in_the_current_directory(made: Path, tmp_path: Path) -> None:
    words = plan_replay(made / "base", tmp_path / "again", None).words
    assert [word for word in words if word.endswith(".yaml")] == ["spec.yaml"]


def test_a_replay_of_one_process_is_not_a_rank_of_the_launch_around_it(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "other", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert replay(made / "base", tmp_path / "again", bitwise=True).same
    assert sorted(path.name for path in (tmp_path / "again").glob("*.h5")) == ["epoch-0000.h5"]


def test_a_spec_with_the_name_of_its_file_keeps_its_name_and_identity(project: Path) -> None:
    (project / "acts.yaml").write_text(SPEC)
    programs.run("-m", "probes", "run", "--out", "named", "acts.yaml", "train.py", "7", check=True)
    found = replay(project / "named", project / "again", directory=project)
    assert found.same
    before, after = recorded(project / "named").spec, recorded(project / "again").spec
    assert (after.name, after.identity) == (before.name, before.identity)


def test_changes_since_the_recording_are_listed_and_refused(project: Path) -> None:
    script = project / "train.py"
    script.write_text(SCRIPT.replace("0.1", "0.5"))
    with pytest.raises(RunError, match=r"--anyway(.|\n)*script train\.py"):
        replay(project / "base", project / "again", directory=project)
    assert not (project / "again").exists()
    base = recorded(project / "base")
    older = base.model_copy(update={"packages": {**base.packages, "numpy": "0.1"}})
    named = {change.what for change in changes(older, project)}
    assert named == {"script train.py", "package numpy"}


def test_with_anyway_the_divergence_of_a_changed_script_is_found(project: Path) -> None:
    (project / "train.py").write_text(SCRIPT.replace("int(sys.argv[1])", "8"))
    found = replay(project / "base", project / "again", directory=project, anyway=True)
    assert not found.same
    assert found.difference is not None
    assert found.difference.first is not None
    assert found.difference.first.clock.step == 0
    assert [change.what for change in found.changes] == ["script train.py"]


def test_expected_roots_are_enough_for_an_answer(project: Path) -> None:
    root = json.loads((project / "base" / "ledger.jsonl").read_text())["captures_root"]
    runner, words = CliRunner(), [str(project / "base"), "--directory", str(project)]
    good = runner.invoke(verb, [*words, "--out", str(project / "a"), "--expect", root[:16], "--json", "--yes"])
    assert good.exit_code == 0, good.output
    assert json.loads(good.stdout)["verdict"] == "same"
    assert ExpectedRoot(root, root).same
    assert not ExpectedRoot(root, "").same
    assert not ExpectedRoot(root[:7], root).same


@pytest.mark.parametrize("root", ["5d34a07", "runs/a", "0" * 65, ""])
def test_expected_roots_are_checked_before_the_script_runs(project: Path, root: str) -> None:
    done = CliRunner().invoke(verb, [str(project / "base"), "--out", str(project / "a"), "--expect", root, "--yes"])
    assert isinstance(done.exception, UsageError)
    assert "is not a captures root" in str(done.exception)
    assert not (project / "a").exists()


def test_a_baseline_without_captures_may_have_one_file_with_the_resolved_spec(project: Path) -> None:
    (project / "baseline").mkdir()
    for name in ("run.json", "spec.yaml", "epoch-0000.h5"):
        shutil.copy(project / "base" / name, project / "baseline")
    plan = plan_replay(project / "baseline", project / "again", project, roots_only=True)
    assert plan.anchored_by == ""
    assert write_spec(project / "baseline", plan.manifest, project).read_text() != SPEC
    with pytest.raises(FileRefused):
        plan_replay(project / "baseline", project / "again", project)


@pytest.mark.parametrize("name", [".", "../base"])
def test_the_new_run_is_next_to_the_recorded_one_by_default(project: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(project / "base")
    done = CliRunner().invoke(verb, [name, "--directory", str(project)])
    assert isinstance(done.exception, UsageError)
    assert f"--out {project / 'base-replay'} " in done.stderr


def _with_code(manifest: Manifest, **update: object) -> Manifest:
    return manifest.model_copy(update={"code": manifest.code.model_copy(update=update)})


def test_a_run_that_cannot_be_replayed_reports_the_reason(project: Path) -> None:
    base, out, spec = recorded(project / "base"), project / "again", project / "spec.yaml"
    assert command(base, spec, out, project)[1:5] == ["-m", "probes", "run", "--out"]
    with pytest.raises(UsageError, match="a notebook"):
        command(_with_code(base, script=None), spec, out, project)
    with pytest.raises(UsageError, match="attaches its probes itself"):
        command(_with_code(base, automatic=False), spec, out, project)
    with pytest.raises(UsageError, match="secret"):
        command(_with_code(base, argv=("--token", "***")), spec, out, project)
    many = base.model_copy(update={"environment": base.environment.model_copy(update={"world": 2})})
    with pytest.raises(UsageError, match="2 processes"):
        command(many, spec, out, project)
    with pytest.raises(UsageError, match="which `slurm` started"):
        command(many, spec, out, project, "slurm")
    again = command(many, spec, out, project, "torchrun")
    assert again[1:9] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "probes", "run"]
    with pytest.raises(StorageError, match=r"run\.json"):
        recorded(project)


def _planned(run: Path, *words: str) -> str:
    done = CliRunner().invoke(verb, [str(run), "--out", str(run.with_name("again")), *words])
    assert not run.with_name("again").exists()
    return f"{done.output} {done.exception}"


def test_nothing_runs_before_the_user_has_seen_it_and_agreed(project: Path) -> None:
    said = _planned(project / "base")
    assert "give --yes" in said
    for shown in ("train.py 7", "as recorded", str(project), "SHA-256", "plug-ins      none"):
        assert shown in said, said


def test_a_run_that_does_not_verify_is_not_run_again(project: Path) -> None:
    (project / "base" / "run.json").write_text((project / "base" / "run.json").read_text().replace('"7"', '"8"'))
    with pytest.raises(FileRefused, match="does not verify, so it is not run again"):
        replay(project / "base", project / "again")


def test_a_script_outside_of_the_directory_is_never_run(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("raise SystemExit(3)")
    (project / "linked.py").symlink_to(tmp_path / "outside.py")
    base, out, spec = recorded(project / "base"), project / "again", project / "spec.yaml"
    for script in ("../outside.py", str(tmp_path / "outside.py"), "linked.py", "-m pip", "-m ..outside", "~/outside.py"):
        with pytest.raises(UsageError, match="is not below"):
            command(_with_code(base, script=script), spec, out, project)


def test_a_script_that_was_given_by_an_absolute_path_is_found_in_another_checkout(made: Path, project: Path) -> None:
    base, out, spec = recorded(project / "base"), project / "again", project / "spec.yaml"
    absolute = _with_code(base, script=str(made / "train.py"), directory=str(made))
    assert command(absolute, spec, out, project)[-2:] == ["train.py", "7"]
    assert command(absolute, spec, out, made)[-2:] == [str(made / "train.py"), "7"]
    outside = _with_code(base, script=str(made / "../outside.py"), directory=str(made))
    (project / "../outside.py").write_text("raise SystemExit(3)")
    with pytest.raises(UsageError, match="is not below"):
        command(outside, spec, out, project)


def test_data_that_a_replay_does_not_check_is_named_before_the_question(project: Path) -> None:
    manifest = json.loads((project / "base" / "run.json").read_text())
    kept = {path.name: path for path in (project / "base").iterdir()}
    (project / "baseline").mkdir()
    (project / "baseline" / "run.json").write_text(json.dumps({**manifest, "data": {"train": "blake3:" + "0" * 64}}))
    (project / "baseline" / "spec.yaml").write_bytes(kept["spec.yaml"].read_bytes())
    found = CliRunner().invoke(verb, ["baseline", "--expect", "0" * 64])
    assert "data          train (not checked: a run records digests of data, and no paths)" in found.output
    assert found.exit_code


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "a\0b", "", ".", "x" * 300, "a\nb"])
def test_a_spec_is_never_written_to_a_place_that_a_manifest_names(project: Path, name: str, tmp_path: Path) -> None:
    base = recorded(project / "base")
    with pytest.raises(UsageError, match="is not the name of a file"):
        write_spec(project / "base", base.model_copy(update={"spec": base.spec.model_copy(update={"name": name})}), tmp_path)


METRICS = "def largest(value):\n    return value.abs().max()\n"
OWN = """version: 1
allow_edits: true
probes:
  own: {hook: forward, modules: ["0"], transforms: [{kind: python, function: "code/metrics.py:largest"}]}
  steer: {hook: forward, modules: ["0"], edit: {kind: add, from: {file: ../direction.npy}}}
  moved:
    hook: forward
    modules: ["1"]
    against: {run: ../reference}
    transforms: [{kind: relative_error}]
"""


def test_a_spec_with_files_next_to_it_replays_with_its_functions_tensors_and_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBES_KEEP_SOURCES", "1")
    (tmp_path / "specs" / "code").mkdir(parents=True)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "specs" / "code" / "metrics.py").write_text(METRICS)
    (tmp_path / "specs" / "own.yaml").write_text(OWN)
    (tmp_path / "specs" / "reference.yaml").write_text('version: 1\nprobes:\n  moved: {hook: forward, modules: ["1"]}\n')
    np.save(tmp_path / "direction.npy", np.arange(3, dtype=np.float32))
    run = ("-m", "probes", "run", "--out")
    programs.run(*run, "reference", "specs/reference.yaml", "train.py", "7", cwd=tmp_path, check=True)
    programs.run(*run, "base", "--allow-code", "specs/code/metrics.py", "specs/own.yaml", "train.py", "7", cwd=tmp_path, check=True)
    shown: list[tuple[str, ...]] = []
    found = replay(tmp_path / "base", tmp_path / "again", bitwise=True, agreed=lambda plan: not shown.append(plan.functions))
    assert found.same
    assert shown[0][0].startswith("code/metrics.py (SHA-256 ")
    (tmp_path / "specs" / "code" / "metrics.py").write_text(METRICS.replace("abs()", "neg()"))
    with pytest.raises(RunError, match=r"specs/code/metrics.py: recorded .*, now "):
        replay(tmp_path / "base", tmp_path / "other")
    assert replay(tmp_path / "base", tmp_path / "third", anyway=True).same  # with the code that is kept next to the run


def _tree(place: Path) -> dict[str, tuple[int, int]]:
    """Every file below a directory with its size and time."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in place.rglob("*")}


def test_the_modules_that_the_script_imports_are_listed_before_the_question(project: Path) -> None:
    (project / "train.py").write_text("import layers.deep\nfrom loss import x\nimport torch\n" + SCRIPT)
    (project / "layers").mkdir()
    (project / "layers" / "__init__.py").write_text("from . import deep\n")
    (project / "layers" / "deep.py").write_text("from ..outside import y\nfrom .sub import z\nimport loss\n")
    (project / "layers" / "sub.py").write_text("(" * 10_000)
    (project / "loss.py").write_text("import linked\n")
    (project / "linked.py").symlink_to(project.parent / "elsewhere.py")
    (project.parent / "elsewhere.py").write_text("")
    (project / "random.py").write_text("")
    said = _planned(project / "base", "--directory", str(project))
    assert "modules       4 below the directory, 0 as recorded" in said
    for shown in ("layers/__init__.py", "layers/deep.py", "layers/sub.py", "loss.py"):
        assert f"  {shown}  " in said, said
    assert "instead of modules of Python: random.py" in said
    assert "linked.py" not in said, "it is not below the directory"


def test_a_directory_with_its_own_module_probes_is_refused(project: Path) -> None:
    (project / "probes").mkdir()
    (project / "probes" / "__init__.py").write_text("raise SystemExit(0)")
    assert "which would run instead of this one" in _planned(project / "base", "--directory", str(project))


def test_before_consent_no_program_runs_and_nothing_is_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoys: hooks, filters and monitors of git, a Python that starts with a file of the directory, and a script that writes."""
    decoy = project.parent / "decoy"
    for name in ("sitecustomize.py", "conftest.py", "loss.py", "train.py"):
        (project / name).write_text(f"import loss\nopen({str(decoy)!r}, 'w')\n")
    (project / ".git" / "hooks").mkdir(parents=True)
    (project / ".git" / "config").write_text(f'[core]\n\tfsmonitor = "touch {decoy}"\n[filter "x"]\n\tclean = "touch {decoy}"\n')
    (project / ".gitattributes").write_text("* filter=x\n")
    monkeypatch.setattr("subprocess.Popen.__init__", lambda *_, **__: decoy.write_text("a program was run"))
    before = _tree(project.parent)
    said = _planned(project / "base", "--directory", str(project))
    assert "give --yes" in said
    assert "loss.py" in said
    assert (_tree(project.parent), decoy.exists()) == (before, False)


def test_a_replay_writes_below_its_directory_only(project: Path) -> None:
    before = _tree(project)
    replay(project / "base", project.parent / "again", directory=project)
    assert _tree(project).keys() == before.keys()
