from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import probes
from probes.commands.init import init
from probes.commands.plan import plan
from probes.script.named_model import named_model
from probes.spec import load_spec
from probes.spec.schema import spec_schema
from tests.commands.conftest import Invoke, Written

UNSEEN = """
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.stack = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(8, 9)
    def forward(self, x):
        return self.head(self.stack(self.embed(x)))

class Stage(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1)
        self.act = nn.ReLU()
    def forward(self, x):
        return self.act(self.conv(x))

class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = Stage(1, 4)
        self.middle = Stage(4, 8)
        self.up = Stage(8, 1)
    def forward(self, x):
        return self.up(self.middle(self.down(x)))

def both():
    return {"g": Pyramid(), "d": Encoder()}

def frozen():
    return Pyramid().requires_grad_(False)

def alone():
    return nn.Linear(2, 2)
"""
INPUTS = {"Encoder": torch.arange(8).view(2, 4), "Pyramid": torch.ones(2, 1, 6, 6)}


@pytest.fixture
def unseen(written: Written) -> Path:
    return written("unseen.py", UNSEEN)


@pytest.mark.parametrize(
    ("name", "targets"),
    [("Encoder", {"stack.layers.0", "stack.layers.1", "stack.layers.2"}), ("Pyramid", {"down", "middle", "up"})],
)
def test_the_first_spec_for_an_unseen_model_runs_as_it_is(name: str, targets: set[str], unseen: Path, invoke: Invoke) -> None:
    assert invoke(init, "--model", f"unseen.py:{name}").code == 0
    model = named_model(f"unseen.py:{name}")
    assert isinstance(model, nn.Module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probes.attach(model, "probe.yaml", out="run") as run:
        for _ in run.epochs(1):
            for x in run.steps([INPUTS[name]] * 2):
                model(x).square().mean().backward()
                optimizer.step()
    read = probes.open("run")
    assert {series.key.target for series in read.series if series.key.probe == "outputs"} == targets
    assert {series.key.target for series in read.series if series.key.probe == "gradients"} == {
        path for path, parameter in model.named_parameters() if path.endswith(".weight")
    }


def test_the_suggested_next_commands_can_be_typed(unseen: Path, invoke: Invoke) -> None:
    said = invoke(init, "--model", "unseen.py:Encoder", "--out", "specs/first.yaml")
    assert "probes plan specs/first.yaml --model unseen.py:Encoder" in said.out
    assert invoke(plan, "specs/first.yaml", "--model", "unseen.py:Encoder").code == 0


def test_other_targets_are_in_comments(unseen: Path, invoke: Invoke) -> None:
    invoke(init, "--model", "unseen.py:Encoder")
    text = Path("probe.yaml").read_text()
    assert '    # modules: ["head"]  # Linear\n' in text
    assert '    # modules: ["stack.layers.{0..2}.self_attn"]  # 3 x MultiheadAttention\n' in text


def test_several_models_are_named(unseen: Path, invoke: Invoke) -> None:
    assert invoke(init, "--model", "unseen.py:both").code == 0
    spec = load_spec("probe.yaml").spec
    assert spec.models == {"g": "Pyramid", "d": "Encoder"}
    assert [(name, probe.model) for name, probe in spec.probes.items()] == [
        ("outputs-g", "g"),
        ("gradients-g", "g"),
        ("outputs-d", "d"),
        ("gradients-d", "d"),
    ]
    assert invoke(plan, "probe.yaml", "--model", "unseen.py:both").code == 0


@pytest.mark.parametrize(("name", "kept"), [("frozen", ["outputs"]), ("alone", ["outputs", "gradients"])])
def test_gradients_are_left_out_where_nothing_is_trained(name: str, kept: list[str], unseen: Path, invoke: Invoke) -> None:
    said = invoke(init, "--model", f"unseen.py:{name}")
    assert "does not fit" not in said.out
    assert list(load_spec("probe.yaml").spec.probes) == kept


def test_an_existing_file_is_never_overwritten(written: Written, invoke: Invoke) -> None:
    mine = written("probe.yaml", "mine")
    said = invoke(init)
    assert said.code == 2
    assert said.err == '"probe.yaml" exists and is not overwritten; choose another file with `--out`'
    assert mine.read_text() == "mine"
    assert not Path("probe-spec.v1.json").exists()


def test_editors_find_the_schema(written: Written, invoke: Invoke) -> None:
    invoke(init)
    assert Path("probe.yaml").read_text().splitlines()[:2] == [
        "# yaml-language-server: $schema=probe-spec.v1.json",
        "# $schema: probe-spec.v1.json",
    ]
    assert json.loads(Path("probe-spec.v1.json").read_text()) == spec_schema()
    assert load_spec("probe.yaml").spec.probes["outputs"].modules


def test_a_preset_is_copied_with_the_targets_of_the_model_next_to_its_own(unseen: Path, invoke: Invoke) -> None:
    assert invoke(init, "--preset", "layer-outputs", "--model", "unseen.py:Encoder").code == 0
    assert '  # layers: "stack.layers.{0..2}"  # 3 x TransformerEncoderLayer\n' in Path("probe.yaml").read_text()
    assert load_spec("probe.yaml").spec.probes == load_spec("preset:layer-outputs").spec.probes


def test_a_preset_that_does_not_fit_the_model_is_written_with_a_warning(unseen: Path, invoke: Invoke) -> None:
    said = invoke(init, "--preset", "dead-units", "--model", "unseen.py:alone")
    assert said.code == 0
    assert "the model has no module of class `ReLU`" in said.out


def test_an_unknown_preset_is_refused_with_the_nearest(written: Written, invoke: Invoke) -> None:
    said = invoke(init, "--preset", "dead-unit")
    assert said.code == 2
    assert said.err == "preset `dead-unit` does not exist; did you mean `preset:dead-units`?"


TRAINED = """
import sys
import torch
from unseen import Encoder

net = Encoder()
net.spare = torch.nn.Linear(2, 2)
print("begins", *sys.argv[1:])
for _ in range(1000):
    net(torch.arange(8).view(2, 4))
print("ends")
"""


def test_a_script_is_watched_for_one_pass_and_what_fires_is_suggested_with_its_shape(
    unseen: Path, written: Written, invoke: Invoke
) -> None:
    written("train.py", TRAINED)
    said = invoke(init, "--out", "first.yaml", "--watch", "train.py", "--out", "its own")
    assert said.code == 0
    text = Path("first.yaml").read_text()
    assert '    modules: ["stack.layers.{0..2}"]  # 3 x TransformerEncoderLayer: float32[2, 4, 8]\n' in text
    assert '    # modules: ["head"]  # Linear: float32[2, 4, 9]\n' in text
    assert "spare" not in text
    assert "  probes plan first.yaml --watch train.py --out 'its own'\n" in said.out
    assert "  probes run first.yaml train.py --out 'its own'\n" in said.out
    assert said.err.splitlines() == ["begins --out its own"]
    assert load_spec("first.yaml").spec.probes["outputs"].when.phases == ("train",)


def test_a_script_that_only_infers_gets_a_spec_for_eval(unseen: Path, written: Written, invoke: Invoke) -> None:
    written("infer.py", TRAINED.replace("Encoder()", "Encoder().eval()"))
    assert invoke(init, "--watch", "infer.py").code == 0
    spec = load_spec("probe.yaml").spec
    assert list(spec.probes) == ["outputs"]
    assert spec.probes["outputs"].when.phases == ("eval",)


def test_every_answer_has_a_flag(unseen: Path, invoke: Invoke) -> None:
    flags = ("--modules", "head", "--modules", "stack.layers.0.*", "--keep", "values", "--every", "5")
    assert invoke(init, "--model", "unseen.py:Encoder", *flags).code == 0
    outputs = load_spec("probe.yaml").spec.probes["outputs"]
    assert outputs.modules == ("head", "stack.layers.0.*")
    assert not outputs.transforms
    assert outputs.when.steps is not None
    assert outputs.when.steps.every == 5
    assert "# Linear\n" in Path("probe.yaml").read_text()
    assert invoke(init, "--out", "plain.yaml", "--every", "1", "--modules", "fc1").code == 0
    assert load_spec("plain.yaml").spec.probes["outputs"].when.steps is None


@pytest.mark.parametrize("modules", [("he*",), ("head", "stack.layers.*")])
def test_a_preset_looks_at_other_modules(modules: tuple[str, ...], unseen: Path, invoke: Invoke) -> None:
    for preset in ("activation-stats", "dead-units"):
        flags = [word for pattern in modules for word in ("--modules", pattern)]
        assert invoke(init, "--out", f"{preset}.yaml", "--preset", preset, *flags).code == 0
        (probe,) = load_spec(f"{preset}.yaml").spec.probes.values()
        assert probe.modules == modules
    said = invoke(init, "--preset", "gradient-flow", "--modules", "head")
    assert said.code == 2
    assert said.err == "preset `gradient-flow` has no variable `layers`, so `--modules` has no effect; remove it"


def typed(*answers: str) -> tuple[str, int]:
    """What `probes init` says on a terminal where these answers are typed, and its exit code."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "probes", "init"], stdin=its, stdout=its, stderr=its, env={**os.environ, "NO_COLOR": "1"}
    )
    os.close(its)
    said = b""
    for answer in [*answers, None]:
        while (found := _read(ours)) and not (answer is not None and (said + found).rstrip().endswith(b":")):
            said += found
        said += found
        if answer is not None:
            os.write(ours, f"{answer}\n".encode())
    os.close(ours)
    return said.decode().replace("\r\n", "\n"), process.wait()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side is closed
        return b""


def test_on_a_terminal_the_verb_asks(unseen: Path) -> None:
    said, code = typed("1", "unseen.py:Encoder", "2 stack.layers.*", "2", "")
    assert code == 0, said
    assert "What do you want to know? [1]:" in said
    assert "nan-hunt               Which value is the first that is not finite, which module made it, and what happened before?" in said
    assert "   1  stack.layers.{0..2}  # 3 x TransformerEncoderLayer\n" in said
    outputs = load_spec("probe.yaml").spec.probes["outputs"]
    assert outputs.modules == ("embed", "stack.layers.*")
    assert not outputs.transforms


def test_without_a_terminal_nothing_is_asked(unseen: Path, invoke: Invoke) -> None:
    assert invoke(init).err == ""
