"""Write docs/presets.md: run the program on the page with every preset, and show the output of the commands.

Usage: python docs/presets.py     (tests/test_presets.py compares)
"""

from __future__ import annotations

import os
import tempfile
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner

from probes.cli import cli
from probes.commands.presets import VIEWS
from probes.errors import Stopped
from probes.spec.spec_files import preset_folder

PAGE = Path(__file__).with_name("presets.md")
SHOWN = {
    "gradient-flow": "show runs/gradient-flow gradients/head.weight --limit 4",
    "dead-units": "ls runs/dead-units\nshow runs/dead-units largest/act --limit 4",
    "saturation": "ls runs/saturation",
    "activation-stats": "show runs/activation-stats outputs/attention:output.0 --limit 4",
    "layer-outputs": "show runs/layer-outputs outputs/head",
    "weight-and-grad-norms": "show runs/weight-and-grad-norms weights/head.weight --limit 4",
    "update-ratio": "show runs/update-ratio updates/head.weight --limit 4",
    "gradient-noise-scale": "show runs/gradient-noise-scale parts/head.weight --limit 4",
    "save-values": "show runs/save-values values/act:grad_output",
    "attention-entropy": "show runs/attention-entropy entropy/attention:output.1 --limit 4",
}
"""The commands that show the result of a preset, one a line."""

SETTINGS: dict[str, dict[str, object]] = {"saturation": {"type": "ReLU", "low": 0, "high": 6, "axes": "batch unit ..."}}
"""The variables of a preset that the program sets."""

STOPPED = {"nan-hunt": "show runs/nan-hunt values/head:output --limit 3"}
"""Presets that end a diverging training: the program runs with a learning rate that is far too large."""

REFUSED = {"memory-by-module": "plan preset:memory-by-module --model program.py:Net"}
"""Presets that need an accelerator; this page is written on a machine without one and shows the error."""

PROGRAM = """\
import torch
from torch import nn

import probes


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, stride=2)
        self.act = nn.ReLU()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, image):
        places = self.act(self.stem(image)).flatten(2).transpose(1, 2)
        mixed, _ = self.attention(places, places, places, average_attn_weights=False)
        return self.head(mixed.mean(1))


def train(preset, lr=0.1, **settings):
    torch.manual_seed(0)
    model = Net()
    model.stem.bias.data[2] = -5  # a unit that cannot fire
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    data = [(torch.randn(8, 1, 9, 9), torch.randint(3, (8,))) for _ in range(20)]
    with probes.attach(model, f"preset:{preset}", out=f"runs/{preset}", vars=settings) as run:
        for _ in run.epochs(2):
            for image, label in run.steps(data):
                loss = nn.functional.cross_entropy(model(image), label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
"""

HEAD = f"""\
# Presets

Written by `python docs/presets.py`, which ran every command on this page.

A preset is a spec in the package that answers a common question. `probes presets` lists them, `probes presets dead-units` prints one.
Use its name in place of a spec: `probes run preset:gradient-flow train.py`, `probes.attach(model, "preset:gradient-flow")`,
`probes check preset:gradient-flow --resolved`.
To change a preset, extend it; your file wins, key by key:

```yaml
version: 1
extends: ["preset:gradient-flow"]
vars: {{parameters: "encoder.**"}}
defaults: {{when: {{steps: {{every: 100}}}}}}
```

A choice is a variable: `--set 'vars.layers=encoder.*'` on the command line, `vars={{"layers": "encoder.*"}}` in
`probes.attach`. By default a preset captures everything that fits. `probes init --preset NAME` writes a copy that you can edit.

The output below comes from this program, called with the name of each preset.

```python
{PROGRAM}```
"""


def page() -> str:
    """The whole page."""
    space: dict[str, object] = {}
    exec(compile(PROGRAM, "program.py", "exec"), space)
    train = space["train"]
    assert callable(train)
    with tempfile.TemporaryDirectory() as name, chdir(name), patch.dict(os.environ, {"NO_COLOR": "1", "COLUMNS": "124"}):
        Path("program.py").write_text(PROGRAM, encoding="utf-8")
        shown = (_entry(preset, command, train) for preset, command in SHOWN.items())
        stopped = (_stopped(preset, command, train) for preset, command in STOPPED.items())
        return HEAD + "".join([*shown, *stopped, *(_section(preset, command, 2) for preset, command in REFUSED.items())])


def _entry(preset: str, command: str, train: object) -> str:
    assert callable(train)
    settings = SETTINGS.get(preset, {})
    train(preset, **settings)
    head, mark, shown = _section(preset, command, 0).rpartition("\n```console")
    words = "".join(f", {name}={value!r}" for name, value in settings.items())
    return head + (f'\nAfter `train("{preset}"{words})`:\n' if settings else "") + mark + shown


def _stopped(preset: str, command: str, train: object) -> str:
    assert callable(train)
    try:
        train(preset, lr=1e4)
    except Stopped as error:
        said = f'\n`train("{preset}", lr=1e4)` ends with\n\n```text\n{type(error).__module__}.{type(error).__name__}: {error}\n```\n'
    head, mark, shown = _section(preset, command, 0).rpartition("\n```console")
    return head + said + mark + shown


def _section(preset: str, command: str, code: int) -> str:
    """The preset and the output of a command."""
    text = (preset_folder() / f"{preset}.yaml").read_text(encoding="utf-8")
    shown = "\n".join(_said(line, code) for line in command.splitlines())
    return f"\n## {preset}\n\n```yaml\n{text}```\n{_view(preset)}\n```console\n{shown}```\n"


def _view(preset: str) -> str:
    """The part of the report, and the picture of it that `docs/preset_pictures.py` took, if there is one."""
    picture = PAGE.parent / "presets" / f"{preset}.png"
    shown = f"\n![{preset} in a report](presets/{picture.name})\n" if picture.exists() else ""
    return f"\nIn [the report](report.md): {VIEWS[preset]}.\n{shown}" if preset in VIEWS else ""


def _said(command: str, code: int) -> str:
    """A command and its output."""
    done = CliRunner().invoke(cli, command.split(), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return f"$ probes {command}\n{done.output}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
