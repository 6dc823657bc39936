"""Gradient accumulation that never steps for the rest: the count goes on over the end of an epoch.
---
group: steps
captured: Net
train: [[2, 2, 1], [2, 2, 1]]
table:
  step: the batches up to `optimizer.step()`; the end of an epoch ends a step too
  microstep: each batch that is accumulated
  epoch: one pass
  phase: "`train`"
why: >
  `(i + 1) % 2` counts from 0 in each epoch, so the fifth batch is never followed by an optimizer step of its own; its gradient is
  used by the first step of the next epoch. An epoch's file is sealed when the epoch ends, so the step cannot go on over it.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x)


model = Net()
loader = DataLoader(TensorDataset(torch.randn(10, 4)), batch_size=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for i, (x,) in enumerate(loader):
        model(x).square().mean().backward()
        if (i + 1) % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
    print(epoch, model.fc.weight.sum().item())
