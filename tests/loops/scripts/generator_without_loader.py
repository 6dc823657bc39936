"""Batches out of a generator function, no DataLoader at all.
---
group: loaders
captured: Net
train: [6]
cases:
  epoch_steps:
    spec: {clock: {epoch_steps: 3}}
    train: [3, 3]
table:
  step: one training call, after an optimizer step
  epoch: all is epoch 0; `clock.epoch_steps=3` cuts it
why: Python tells nobody that a generator is iterated. Without a loader a step ends at the first training call after an optimizer step.
"""

import numpy as np
import torch
from torch import nn


def batches(data, size, generator):
    order = generator.permutation(len(data))
    for start in range(0, len(data), size):
        yield torch.from_numpy(data[order[start : start + size]])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


generator = np.random.default_rng(0)
data = generator.normal(size=(12, 3)).astype(np.float32)
torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x in batches(data, 4, generator):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    print(epoch, net.fc.bias.item())
