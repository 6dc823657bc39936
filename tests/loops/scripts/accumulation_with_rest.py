"""Gradient accumulation over two batches, where the last batch of an epoch stands alone.
---
group: steps
captured: Net
train: [[2, 2, 1], [2, 2, 1]]
cases:
  batch:
    spec: {clock: {step: batch}}
    train: [5, 5]
  forward:
    spec: {clock: {step: forward}}
    train: [5, 5]
table:
  step: the batches up to `optimizer.step()`
  microstep: each batch that is accumulated
  epoch: one pass
  phase: "`train`"
why: A step ends at the first pull after the optimizer has stepped; the rest of an epoch is stepped too.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
ACCUMULATE = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x)


def main():
    loader = DataLoader(TensorDataset(torch.randn(10, 4)), batch_size=2)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        for i, (x,) in enumerate(loader):
            (model(x).square().mean() / ACCUMULATE).backward()
            if (i + 1) % ACCUMULATE == 0 or i + 1 == len(loader):
                optimizer.step()
                optimizer.zero_grad()
        print(epoch, model.fc.weight.sum().item())


if __name__ == "__main__":
    main()
