"""One layer under two names, called twice in each forward, and tied weights.
---
group: parts
captured: Net
target: first
train: [2, 2]
table:
  step: one batch
  microstep: always 0; within it the shared layer has calls 0 and 1
  epoch: one pass
why: A module that is shared is one module; `call` counts its calls within one outermost call.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = self.first
        self.out = nn.Linear(3, 3)
        self.out.weight = self.first.weight

    def forward(self, x):
        return self.out(self.second(self.first(x).relu()).relu())


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
