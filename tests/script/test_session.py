"""The end of a program with probes, and the files that remain."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from textwrap import dedent

import pytest

import probes
from probes.script.program import Program
from probes.script.progress import Progress
from probes.script.run_request import RunRequest
from probes.script.session import Session
from probes.spec import load_spec
from tests.script.conftest import PRELUDE, Probed
from tests.warm import programs

LOOP = """
net = Net()
optimizer = SGD(net.parameters(), lr=0.1)
for i, (x,) in enumerate(loader(8, 2)):
    step(net, optimizer, x)
    {what}
"""


def test_the_start_prints_the_model_and_the_rule_of_a_step(probed: Probed) -> None:
    done = probed(LOOP.format(what="pass"))
    assert done.code == 0
    lines = done.said.splitlines()
    assert lines[0].startswith(f"probes {probes.__version__}  spec <spec> (sha256 ")
    assert lines[0].endswith(f")  ->  {done.out}")
    assert lines[1].startswith("bound to Net (first call, ")
    assert lines[1].endswith("train.py:24): 1 probe, 1 target")
    assert lines[3].startswith("step = optimizer step, epoch = pass over the training loader")
    assert lines[4] == "epoch 0  train 4 steps  4 captures  64 B"
    assert lines[-1] == f"next: probes ls {done.out}"


def test_an_exception_leaves_an_incomplete_epoch_and_a_traceback_without_probes(probed: Probed, capsys: pytest.CaptureFixture[str]) -> None:
    done = probed(LOOP.format(what="if i == 2: raise ValueError('bad batch')"))
    assert done.code == 1
    assert done.steps() == {0: 2}
    assert probes.open(done.out).state == {0: "incomplete"}
    told = capsys.readouterr().err
    assert told.splitlines()[-1] == "ValueError: bad batch"
    assert "probes/script" not in told


def test_an_exception_in_the_model_is_reported_without_the_frames_of_probes(probed: Probed, capsys: pytest.CaptureFixture[str]) -> None:
    done = probed("""
        class Broken(Net):
            def forward(self, x):
                raise ValueError("no forward")
        Broken()(torch.randn(1, 3))
    """)
    assert done.code == 1
    told = capsys.readouterr().err
    assert "no forward" in told
    assert "probes/script" not in told
    assert "probes/runner" not in told


def test_the_exit_code_of_the_script_is_kept(probed: Probed) -> None:
    assert probed(LOOP.format(what="if i == 2: sys.exit(7)")).code == 7


@pytest.mark.parametrize(
    ("hook", "code", "last"), [("raise SystemExit(5)", 5, ""), ("raise KeyError('broken hook')", 1, "ValueError: bad batch")]
)
def test_a_run_is_sealed_also_if_the_excepthook_of_the_program_raises(
    probed: Probed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], hook: str, code: int, last: str
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    own = f"def hook(*about):\n    {hook}\nsys.excepthook = hook\n"
    done = probed(own + LOOP.format(what="if i == 2: raise ValueError('bad batch')"))
    assert (done.code, done.steps()) == (code, {0: 2})
    assert probes.open(done.out).state == {0: "incomplete"}
    told = capsys.readouterr().err
    assert "".join(told.splitlines()[-1:]) == last
    assert ("Error in sys.excepthook:" in told) == ("KeyError: 'broken hook'" in told) == (code == 1)


def test_threads_that_train_after_the_main_code_are_captured_to_their_end(tmp_path: Path) -> None:
    text = """
        import threading, time
        from concurrent.futures import ThreadPoolExecutor

        def train():
            time.sleep(0.2)
            net = Net()
            optimizer = SGD(net.parameters(), lr=0.1)
            for (x,) in loader(8, 2):
                step(net, optimizer, x)

        def second():
            threading.main_thread().join()
            print("second")

        idle = ThreadPoolExecutor(1)
        idle.submit(print, "idle").result()
        threading.Thread(target=second).start()
        ThreadPoolExecutor(1).submit(train)
    """
    (tmp_path / "train.py").write_text(PRELUDE + dedent(text))
    (tmp_path / "probe.yaml").write_text("version: 1\nprobes: {acts: {hook: forward, modules: [fc]}}\n")
    done = programs.run("-m", "probes", "run", "--out", "run", "probe.yaml", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "idle\nsecond\n"), done.stderr
    run = probes.open(tmp_path / "run")
    assert (len(run["acts", "fc"]), run.state) == (4, {0: "complete"})


def test_an_interrupt_is_130_and_seals_committed_steps(probed: Probed) -> None:
    done = probed(LOOP.format(what="if i == 2: raise KeyboardInterrupt"))
    assert done.code == 130
    assert done.steps() == {0: 2}


@pytest.mark.parametrize(("batch", "state"), [(2, "incomplete"), (3, "complete")])
def test_an_exit_with_zero_is_a_success_and_the_epoch_is_complete_after_its_last_batch(probed: Probed, batch: int, state: str) -> None:
    done = probed(LOOP.format(what=f"if i == {batch}: sys.exit(0)"))
    assert done.code == 0
    assert probes.open(done.out).state == {0: state}


@pytest.mark.parametrize(("leave", "state"), [("os.kill(os.getpid(), signal.SIGTERM)", "incomplete"), ("sys.exit(143)", "complete")])
def test_an_epoch_whose_end_nothing_tells_is_incomplete_if_a_signal_handler_exits_in_it(probed: Probed, leave: str, state: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    done = probed(f"""
        import os, signal
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        for index in range(4):
            step(net, optimizer, torch.randn(2, 3))
        {leave}
    """)
    signal.signal(signal.SIGTERM, before)
    assert done.code == 143
    assert probes.open(done.out).state == {0: state}


def test_a_spec_that_captured_nothing_fails_a_script_that_succeeded(probed: Probed) -> None:
    never = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["fc"], "when": {"phases": ["eval"]}}}}
    done = probed(LOOP.format(what="pass"), never)
    assert done.code == 1
    assert "probe `acts` captured nothing" in done.said


def test_a_spec_that_fits_no_model_stops_the_script_before_step_0(probed: Probed, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["fc1"]}}}
    done = probed(LOOP.format(what="print('step is over')"), wrong)
    assert done.code == 2
    assert "step is over" not in capsys.readouterr().out
    assert "the model has no module `fc1`" in done.said
    assert "the script called Net (3 modules, first called at " in done.said
    assert done.said.count("error[") == 1
    assert not done.out.exists()


WRONG = {
    "unexpected-matches": {"hook": "forward", "modules": ["*"], "expect": {"matches": 9}},
    "transform-does-not-fit": {"hook": "forward", "modules": ["fc"], "transforms": [{"kind": "python", "function": "metrics.py:f"}]},
    "no-match": {"hook": "forward", "modules": ["blocks.*"]},
}


@pytest.mark.parametrize("code", WRONG)
def test_one_cause_is_one_error(probed: Probed, code: str) -> None:
    done = probed(LOOP.format(what="pass"), {"version": 1, "probes": {"acts": WRONG[code]}})
    assert done.code == 2
    assert re.findall(r"error\[([\w-]+)\]", done.said) == [code]
    assert "the script called Net (3 modules, first called at " in done.said


def test_a_run_without_an_optimizer_is_reported_at_the_end(probed: Probed) -> None:
    wrong = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["fc1"]}}}
    done = probed("Net()(torch.randn(1, 3)); nn.ReLU()(torch.randn(1))", wrong)
    assert done.code == 2
    assert "ReLU (1 module, first called at " in done.said


def test_an_unrelated_module_and_a_loss_are_not_the_model(probed: Probed) -> None:
    everything = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["**"]}}}
    done = probed(
        """
        nn.Sequential(nn.Flatten())(torch.randn(2, 3))
        net, criterion = Net(), nn.MSELoss()
        criterion(torch.zeros(1), torch.zeros(1))
        criterion(net(torch.randn(2, 3)), torch.zeros(2, 1)).backward()
        """,
        everything,
    )
    assert done.code == 0
    assert "bound to Net" in done.said


def test_a_script_that_calls_no_model_fails_with_the_reason(probed: Probed) -> None:
    done = probed("print('nothing')")
    assert done.code == 1
    assert "the program called no model in this process" in done.said


def test_a_model_that_is_never_called_fails_with_its_name(probed: Probed) -> None:
    acts = {"hook": "forward", "modules": ["fc"]}
    spec = {"version": 1, "models": {"a": "Net", "b": "Other"}, "probes": {"acts": {**acts, "model": "a"}, "more": {**acts, "model": "b"}}}
    done = probed("Net()(torch.randn(1, 3))", spec)
    assert done.code == 2
    assert "model `b`: no instance of class `Other` was called" in done.said


def test_a_directory_in_use_ends_the_script_before_its_first_call(probed: Probed, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    done = probed("Net()(torch.randn(1, 3))")
    assert done.code == 3
    assert 'is not empty (it holds "notes.txt")' in done.said


def test_the_manifest_names_the_script_and_its_arguments(probed: Probed) -> None:
    done = probed(LOOP.format(what="pass"), arguments=("--lr", "1"))
    code = json.loads((done.out / "run.json").read_text())["code"]
    assert code["script"].endswith("train.py")
    assert code["argv"] == ["--lr", "1"]


def test_the_script_itself_imports_torch_and_may_set_what_torch_reads(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nassert 'torch' not in sys.modules and 'numpy' not in sys.modules\nimport os\n" + PRELUDE + "Net()(torch.ones(1, 3))"
    )
    (tmp_path / "probe.yaml").write_text("version: 1\nprobes: {acts: {hook: forward, modules: [fc]}}\n")
    words = "import sys; from probes.commands.run import run; run(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", words, "--out", "run", "probe.yaml", "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_committed_steps_of_a_killed_script_can_be_recovered(tmp_path: Path) -> None:
    from probes.run_directory.recover import recover

    script = tmp_path / "train.py"
    script.write_text(PRELUDE + dedent(LOOP.format(what="if i == 3: import os; os._exit(9)")))
    (tmp_path / "probe.yaml").write_text("version: 1\nprobes: {acts: {hook: forward, modules: [fc]}}\n")
    done = programs.run("-m", "probes", "run", "-q", "--out", "run", "probe.yaml", "train.py", cwd=tmp_path)
    assert done.returncode == 9
    assert done.stderr == "`os._exit` ends the program while its run is open: `probes recover run` seals it\n"
    recover(tmp_path / "run")
    assert len(probes.open(tmp_path / "run")["acts", "fc"]) == 3


def test_a_script_may_change_its_directory(probed: Probed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    done = probed(LOOP.format(what="import os; os.chdir('elsewhere') if i == 1 else None"), out="run", clock={"epoch_steps": 2})
    assert done.code == 0, done.said
    assert done.steps() == {0: 2, 1: 2}


def test_without_out_the_run_is_where_the_user_started_and_the_printed_path_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra and others change the working directory before the model is called."""
    started, elsewhere = tmp_path / "started", tmp_path / "elsewhere"
    started.mkdir()
    elsewhere.mkdir()
    (started / "train.py").write_text(PRELUDE + f"import os\nos.chdir({str(elsewhere)!r})\n" + LOOP.format(what="pass"))
    monkeypatch.chdir(started)
    said = StringIO()
    spec = load_spec({"version": 1, "name": "t", "probes": {"acts": {"hook": "forward", "modules": ["fc"]}}})
    assert Session(RunRequest(spec), Progress(stream=said)).run(Program("train.py")).code == 0
    printed = said.getvalue().splitlines()[-1].removeprefix("next: probes ls ")
    assert printed.startswith("runs/t/")
    assert len(probes.open(started / printed)["acts", "fc"]) == 4
    assert not list(elsewhere.iterdir())


def test_a_program_whose_names_cannot_be_decoded_is_captured_and_verifies(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"d\xfcr")
    folder.mkdir()
    script, spec, out = (folder / os.fsdecode(name) for name in (b"tr\xe4in.py", b"sp\xe9c.yaml", b"r\xfcn"))
    script.write_text(PRELUDE + dedent(LOOP.format(what="pass")), encoding="utf-8")
    spec.write_text("version: 1\nname: a\nprobes: {p: {hook: forward, modules: [fc]}}\n", encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:surrogateescape"}
    words = ["-m", "probes", "run", "--out", str(out), str(spec), str(script), os.fsdecode(b"--\xfc")]
    done = programs.run(*words, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert probes.open(out)["p", "fc"].numpy().shape == (4, 2, 2)
    assert json.loads((out / "run.json").read_text("utf-8"))["code"]["argv"] == ["--\\udcfc"]
    assert programs.run("-m", "probes", "verify", out, cwd=folder, env=environment).returncode == 0
