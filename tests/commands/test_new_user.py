"""Tried as a new user would: three commands on a model never seen before, and mistakes that are mended from the message alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import probes
from probes.commands.check import check
from probes.commands.init import init
from probes.commands.plan import plan
from probes.commands.run import run
from tests.commands.conftest import Invoke, Said, Written

pytest.importorskip("transformers", reason="transformers is not installed; the extra `minilm` brings it")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of transformers itself

MODELS = """
from functools import partial

from tests.conformance.architectures import CONFIGURATIONS, build

bert, gpt2, llama, vit, bart, resnet, mixtral, mamba = (
    partial(build, name, **CONFIGURATIONS[name][1]) for name in ("bert", "gpt2", "llama", "vit", "bart", "resnet", "mixtral", "mamba")
)
"""
TRAIN = """
import sys

import models
import torch
from tests.conformance.architectures import batch_of

name = sys.argv[1]
torch.manual_seed(0)
model = getattr(models, name)()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(4):
    model(**batch_of(name))[0].square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def folder(written: Written) -> Path:
    """A training script and the functions that build its models."""
    written("models.py", MODELS)
    return written("train.py", TRAIN).parent


BLOCKS = {
    "bert": ["encoder.layer.0", "encoder.layer.1"],
    "gpt2": ["h.0", "h.1"],
    "llama": ["layers.0", "layers.1"],
    "vit": ["layers.0", "layers.1"],
    "bart": ["decoder.layers.0", "decoder.layers.1"],
    "resnet": ["encoder.stages.0", "encoder.stages.1"],
    "mixtral": ["layers.0", "layers.1"],
    "mamba": ["layers.0", "layers.1"],
}


@pytest.mark.parametrize("name", BLOCKS)
def test_three_commands_capture_an_unknown_model(name: str, folder: Path, invoke: Invoke) -> None:
    for words in ((init, "--model", f"models.py:{name}"), (plan, "probe.yaml", "--model", f"models.py:{name}")):
        said = invoke(*words)
        assert said.code == 0, said.err
        assert "does not fit" not in said.out
    said = invoke(run, "--out", "run", "probe.yaml", "train.py", name)
    assert said.code == 0, said.err
    captured = {(series.key.probe, series.key.target) for series in probes.open("run").series}
    assert set(BLOCKS[name]) <= {target for probe, target in captured if probe == "outputs"}
    assert any(probe == "gradients" for probe, _ in captured)


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_three_commands_from_the_script_capture_a_new_model(name: str, folder: Path, invoke: Invoke) -> None:
    assert invoke(init, "--watch", "train.py", name).code == 0
    assert invoke(plan, "probe.yaml", "--watch", "train.py", name).code == 0
    said = invoke(run, "--out", "run", "probe.yaml", "train.py", name)
    assert said.code == 0, said.err
    assert probes.open("run").series


PROBE = "version: 1\nprobes:\n  acts: {hook: forward, modules: [pooler]}\n"
MISTAKES = {
    "a key": PROBE.replace("hook:", "hok:"),
    "a hook": PROBE.replace("forward", "foward"),
    "a module": PROBE.replace("pooler", "encoder.layr.0"),
    "a level of a glob": PROBE.replace("[pooler]", '["encodr.layer.*"]'),
    "a glob that begins too deep": PROBE.replace("[pooler]", '["layer.*"]'),
    "a glob without quotes": PROBE.replace("pooler", "**.attention"),
    "braces without quotes": PROBE.replace("pooler", "encoder.layer.{0..1}"),
    "a list of modules": PROBE.replace("pooler", "encoder.layer"),
    "no list": PROBE.replace("[pooler]", "pooler"),
    "a class": PROBE.replace("[pooler]", '["**"], types: [BertSelfAtention]'),
    "types of an exact path": PROBE.replace("[pooler]", "[pooler], types: [BertPooler]"),
    "a value": PROBE.replace("hook: forward, ", "values: [ouput], "),
    "a value of another hook": PROBE.replace("[pooler]", "[pooler], values: [grad_output]"),
    "a transform": PROBE.replace("[pooler]", "[pooler], transforms: [{kind: cst, dtype: float16}]"),
    "a dtype": PROBE.replace("[pooler]", "[pooler], transforms: [{kind: cast, dtype: flot16}]"),
    "a parameter": "version: 1\nprobes:\n  grads: {tensors: [pooler.dense.wieght], values: [grad], stage: final}\n",
    "a stage": "version: 1\nprobes:\n  grads: {tensors: [pooler.dense.weight], values: [grad], stage: finl}\n",
    "a variable": "version: 1\nvars: {layer: pooler}\nprobes:\n  acts: {hook: forward, modules: ['${layr}']}\n",
    "an edit that is not permitted": PROBE.replace("[pooler]", "[pooler], edit: {kind: zero}"),
    "no version": PROBE.removeprefix("version: 1\n"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_can_be_corrected_from_the_message_alone(name: str, folder: Path, written: Written, invoke: Invoke) -> None:
    def planned(text: str) -> Said:
        written("probe.yaml", text)
        return invoke(plan, "probe.yaml", "--model", "models.py:bert")

    said = planned(MISTAKES[name])
    assert said.code == 2
    text = mended(MISTAKES[name], said.err)
    again = planned(text)
    assert again.code == 0, f"{said.err}\n{text}\n{again.err}"
    assert invoke(check, "probe.yaml").code == 0


def mended(text: str, message: str) -> str:
    """A spec with what a message says done, by rules that know nothing of specs: no more than it says, where it says it."""
    head, _, caret, *_ = message.splitlines()
    place = re.match(r"probe\.yaml:(\d+):(\d+): error\[[a-z-]+\]: (.*)", head)
    assert place is not None, message
    line, column, found = int(place[1]) - 1, int(place[2]) - 1, place[3]
    hint = caret.partition("^")[2].lstrip("^ ")
    lines = text.splitlines()
    for pattern, mend in RULES.items():
        said = re.search(pattern, hint)
        if said is not None:
            mend(lines, line, column, found, said)
            return "\n".join(lines) + "\n"
    raise AssertionError(f"it does not say what to do: {message}")


Mend = Callable[[list[str], int, int, str, re.Match[str]], None]


def other_name(lines: list[str], line: int, column: int, found: str, said: re.Match[str]) -> None:
    """Put the right name in the place of the wrong one that the message quotes."""
    rest = lines[line][column:]
    wrong = next(name for name in re.findall(r"[`'](.+?)[`']", found) if name in rest)
    lines[line] = lines[line][:column] + rest.replace(wrong, said[1], 1)


def in_quotes(lines: list[str], line: int, _column: int, _found: str, said: re.Match[str]) -> None:
    """Quote what is to be quoted."""
    lines[line] = lines[line].replace(said[1], f'"{said[1]}"', 1)


def other_value(lines: list[str], line: int, column: int, _found: str, said: re.Match[str]) -> None:
    """Write what is to be written in the place of the value, or of the key and its value."""
    end = item_end(lines[line], column)
    lines[line] = lines[line][:column] + said[1] + lines[line][end:]


def left_out(lines: list[str], line: int, column: int, _found: str, said: re.Match[str]) -> None:
    """Take a key and its value away."""
    start = lines[line].index(f"{said[1]}:") if said[1] else column
    end = item_end(lines[line], start)
    before, after = lines[line][:start], lines[line][end:]
    lines[line] = before + after.removeprefix(", ") if after.startswith(",") else before.removesuffix(", ") + after


def on_top(lines: list[str], _line: int, _column: int, _found: str, said: re.Match[str]) -> None:
    """Add a line at the top level."""
    lines.insert(0, said[1])


def item_end(text: str, start: int) -> int:
    """Where the item of a flow collection ends that begins at `start`."""
    depth = 0
    for end in range(start, len(text)):
        if depth == 0 and text[end] in ",]}":
            return end
        depth += (text[end] in "[{") - (text[end] in "]}")
    return len(text)


RULES: dict[str, Mend] = {
    r"did you mean `(.+?)`\?": other_name,
    r"^`(.+?)` (?:matches|names)": other_name,
    r'must be quoted: "(.+)"$': in_quotes,
    r"^write `(.+)`$": other_value,
    r"^write (\[.+\])$": other_value,
    r"^remove (?:it\b|`(\w+)`)": left_out,
    r"^add `(.+?)`": on_top,
}
