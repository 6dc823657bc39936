"""The models that the specs of this folder do not fit; the first line of each spec names one."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Two convolutions in a list, a frozen layer, a head, and a layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)])
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.classifier = nn.Linear(4, 3)
        self.unused = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, image: Tensor, skip: bool = False) -> dict[str, Tensor]:
        for block in self.blocks:
            image = block(image).relu()
        pooled = image.mean((2, 3)) * self.scale
        if skip:
            return {"logits": pooled, "aside": pooled}
        return {"logits": self.classifier(self.frozen(pooled)), "aside": pooled * 3}


class Recurrent(nn.Module):
    """Calls one layer twice, and returns a tuple whose second member is None."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)
        self.pair = Pair()

    def forward(self, image: Tensor) -> Tensor:
        mixed, _ = self.pair(self.cell(self.cell(image.flatten(1)[:, :4])))
        return mixed


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return x * 2, None


def net() -> nn.Module:
    return Net()


def recurrent() -> nn.Module:
    return Recurrent()


def single() -> nn.Module:
    return nn.Linear(2, 2)


def parallel() -> nn.Module:
    return nn.DataParallel(Net())


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a ScriptModule is what is wanted
        return nn.Sequential(torch.jit.script(nn.Linear(4, 4)), nn.Linear(4, 3))


def compiled() -> nn.Module:
    model = Net()
    model.compile(fullgraph=True, backend="eager")
    return model


def deep() -> nn.Module:
    return nn.Sequential(*(nn.Identity() for _ in range(600)))
