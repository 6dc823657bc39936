"""A stream: an IterableDataset, of which no length is known.
---
group: loaders
captured: Net
train: [3, 3]
table:
  step: one batch
  epoch: one pass over the stream
why: The base rule; a loader needs no length.
"""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __iter__(self):
        generator = random.Random(0)
        for _ in range(5):
            yield torch.tensor([generator.random() for _ in range(3)])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.RMSprop(net.parameters())
loader = DataLoader(Lines(), batch_size=2)
for _ in range(2):
    for x in loader:
        optimizer.zero_grad()
        loss = net(x).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())
