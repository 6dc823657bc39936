"""One line of the conformance matrix: a model, what it is called with, and a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Batch = dict[str, Any]
Loop = Callable[[nn.Module, Iterable[Batch]], list[float]]
STEPS = 2


def loss_of(output: Any) -> Tensor:
    """A loss of the first floating point tensor of an output."""
    while not isinstance(output, Tensor):
        output = next(iter(output.values())) if hasattr(output, "values") else output[0]
    return output.float().square().mean()


def train(model: nn.Module, batches: Iterable[Batch]) -> list[float]:
    """The ordinary loop."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model(**batch))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@dataclass(frozen=True)
class Case:
    """A model and what is done with it.

    Attributes:
        name: stands in the table.
        about: why it is in.
        build: makes the model; called under a fixed seed.
        batch: makes what the model is called with, by keyword.
        loop: trains it.
        reference: makes the model that hand-written hooks can be trusted on, where it is not the same: without checkpointing.
    """

    name: str
    about: str
    build: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loop: Loop = train
    reference: Callable[[], nn.Module] | None = None
    seed: int = field(default=11)

    def model(self, reference: bool = False) -> nn.Module:
        """The model, the same at every call."""
        torch.manual_seed(self.seed)
        return (self.reference or self.build)() if reference else self.build()

    def batches(self) -> list[Batch]:
        """The same batches at every call."""
        torch.manual_seed(self.seed + 1)
        return [self.batch() for _ in range(STEPS)]
