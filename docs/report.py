"""Train a small model, write its report, and take the picture of it for the documents.

Usage: python docs/report.py     (needs Chromium, see CONTRIBUTING.md; writes docs/report.png)
"""

from __future__ import annotations

import tempfile
from contextlib import chdir
from pathlib import Path

import torch
from torch import nn

import probes
from probes.report.document import report
from tests.report.chromium import chromium, load

PICTURE = Path(__file__).absolute().with_name("report.png")
WIDTH, HEIGHT, SCALE = 1200, 1240, 0.8
SPEC = """\
version: 1
name: little-transformer
about: Where does the model learn, and what do its blocks return?
probes:
  activations: {hook: forward, modules: ["blocks.*", "blocks.*.{norm,mlp}", "blocks.*.mlp.*", head], transforms: [{kind: stats}]}
  spread: {hook: forward, modules: ["blocks.*"], transforms: [{kind: histogram, bins: 24, range: [-4, 4]}]}
  loop: {values: [loop.loss, loop.lr]}
"""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        x = x + self.attn(h, h, h)[0]
        return x + self.mlp(x)


class LittleTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def train(out: Path) -> None:
    """Three epochs on patterns in noise."""
    torch.manual_seed(0)
    model = LittleTransformer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    labels = torch.randint(3, (20, 8))
    data = [(torch.randn(8, 12, 4) * 0.4 + nn.functional.one_hot(label, 4)[:, None], label) for label in labels]
    with probes.attach(model, "probe.yaml", out=out) as run:
        for _ in run.epochs(3):
            for x, label in run.steps(data):
                loss = nn.functional.cross_entropy(model(x), label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.log(loss=loss.item(), lr=schedule.get_last_lr()[0])
                schedule.step()


def main() -> None:
    """Write the picture, with a cell that is chosen."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), chromium(WIDTH, HEIGHT) as browser:
        Path("probe.yaml").write_text(SPEC, encoding="utf-8")
        train(Path("runs/a"))
        page = Path("report.html").absolute()
        page.write_text(report([Path("runs/a")])[0], encoding="utf-8")
        screen = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": SCALE, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        load(browser, page)
        row = "view.lines.findIndex(one => one.name === 'blocks.2')"
        browser.execute_script(f"Object.assign(state, {{row: {row}, column: 34, kept: true}}); showCell()")
        browser.execute_async_script("setTimeout(arguments[0], 500)")
        PICTURE.write_bytes(browser.get_screenshot_as_png())
    print(f"{PICTURE}: {PICTURE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
