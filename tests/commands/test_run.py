import shlex
from pathlib import Path

import pytest

import probes
from probes.commands.run import run
from tests.commands.conftest import Invoke, Written

TRAIN = """
import sys
import torch
from model import Net

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=float(sys.argv[2]) if len(sys.argv) > 2 else 0.1)
for _ in range(3):
    optimizer.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""
SPEC = "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1]}\n"


@pytest.fixture
def files(written: Written) -> Path:
    written("train.py", TRAIN)
    return written("probe.yaml", SPEC).parent


def test_the_next_command_can_be_copied_where_the_directory_has_a_space(invoke: Invoke, files: Path) -> None:
    said = invoke(run, "--out", "my runs/it's one", "probe.yaml", "train.py")
    command = said.err.splitlines()[-1].removeprefix("next: ")
    assert shlex.split(command) == ["probes", "ls", "my runs/it's one"]


def test_a_script_runs_with_probes_and_keeps_its_own_options(invoke: Invoke, files: Path) -> None:
    said = invoke(run, "--out", "mine", "--tag", "lr=0.5", "probe.yaml", "train.py", "--lr", "0.5")
    assert said.code == 0
    assert said.out == ""
    assert "next: probes ls mine" in said.err
    done = probes.open(files / "mine")
    assert len(done["acts", "fc1"]) == 3
    assert done.manifest["tags"] == {"lr": "0.5"}
    assert done.manifest["code"]["argv"] == ["--lr", "0.5"]


def test_quiet_prints_nothing(invoke: Invoke, files: Path) -> None:
    said = invoke(run, "-q", "--out", "mine", "probe.yaml", "train.py")
    assert (said.code, said.out, said.err) == (0, "", "")


def test_set_and_set_file_change_the_spec_in_this_order(invoke: Invoke, files: Path) -> None:
    (files / "changes").write_text("# every other step\n\nprobes.acts.when.steps.every=2\nprobes.acts.modules=[h.0]\n")
    said = invoke(run, "-q", "--out", "mine", "--set", "probes.acts.modules=[h.1]", "--set-file", "changes", "probe.yaml", "train.py")
    assert said.code == 0, said.err
    done = probes.open(files / "mine")
    assert len(done["acts", "h.1"]) == 2
    assert done.manifest["spec"]["overrides"] == [
        "probes.acts.when.steps.every=2",
        "probes.acts.modules=[h.0]",
        "probes.acts.modules=[h.1]",
    ]


def test_a_spec_is_refused_before_anything_runs(invoke: Invoke, files: Path) -> None:
    (files / "train.py").write_text("raise SystemExit('it ran')")
    (files / "probe.yaml").write_text(SPEC.replace("hook", "hok"))
    said = invoke(run, "probe.yaml", "train.py")
    assert said.code == 2
    assert "it ran" not in said.err
    assert invoke(run, "none.yaml", "train.py").code == 3
    assert invoke(run, "probe.yaml", "none.py").code == 3


def test_a_tag_needs_a_name_and_a_text(invoke: Invoke, files: Path) -> None:
    said = invoke(run, "--tag", "fast", "probe.yaml", "train.py")
    assert said.code == 2
    assert "`--tag fast` is not NAME=TEXT" in said.err


def test_a_missing_set_file_is_reported(invoke: Invoke, files: Path) -> None:
    said = invoke(run, "--set-file", "none", "probe.yaml", "train.py")
    assert said.code == 3
    assert 'cannot read "none"' in said.err


def test_an_option_after_the_spec_is_answered_with_its_right_place(invoke: Invoke, files: Path) -> None:
    said = invoke(run, "probe.yaml", "--out", "mine", "train.py")
    assert said.code == 2
    assert "found option `--out` where the script is expected" in said.err


def test_an_option_after_the_script_that_the_script_does_not_know_is_noticed(invoke: Invoke, files: Path) -> None:
    said = invoke(run, "probe.yaml", "train.py", "--lr", "0.5", "--out", "runs/a", "-v")
    assert "probes run --out runs/a probe.yaml train.py --lr 0.5 -v" in said.err
    assert said.code == 0
    said = invoke(run, "probe.yaml", "train.py", "--lr", "0.5", "--resume")
    assert "`--resume` is after the script, so `train.py` gets it" in said.err
    assert "probes run --resume probe.yaml train.py --lr 0.5" in said.err
    (files / "train.py").write_text(TRAIN + "parser_dest = 'out'\n", encoding="utf-8")
    said = invoke(run, "probe.yaml", "train.py", "--lr", "0.5", "--out=runs/b")
    assert "behind the script" not in said.err


def test_a_module_runs_too(invoke: Invoke, files: Path) -> None:
    said = invoke(run, "--out", "mine", "probe.yaml", "-m", "train")
    assert said.code == 0, said.err
    assert len(probes.open(files / "mine")["acts", "fc1"]) == 3


def test_a_run_is_resumed_with_its_next_epoch_as_another_attempt(invoke: Invoke, files: Path) -> None:
    assert invoke(run, "-q", "--out", "mine", "probe.yaml", "train.py").code == 0
    said = invoke(run, "--out", "mine", "--resume", "probe.yaml", "train.py")
    assert said.code == 0
    assert "->  mine  (attempt 2, from epoch 1)" in said.err
    assert invoke(run, "-q", "--out", "mine", "--resume", "--first-epoch", "5", "probe.yaml", "train.py").code == 0
    assert [(one.epoch, one.attempt) for one in probes.open(files / "mine").attempts] == [(0, 1), (1, 2), (5, 3)]
    assert probes.open(files / "mine")["acts", "fc1"].clocks["global_step"].tolist() == list(range(9))


def test_a_used_directory_is_refused_with_the_next_command(invoke: Invoke, files: Path) -> None:
    assert invoke(run, "-q", "--out", "mine", "probe.yaml", "train.py").code == 0
    said = invoke(run, "--out", "mine", "probe.yaml", "train.py")
    assert said.code == 3
    assert (
        "files are never overwritten: choose another directory with `out`, delete this one, or continue its run with `--resume`" in said.err
    )
