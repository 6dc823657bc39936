"""Lazy layers, which a first call under no_grad gives their shape.
---
group: phases
captured: Net
train: [2, 2]
eval: [1, 0]
table:
  step: "`train`: one batch; `eval`: the first call"
  epoch: one pass; the first call belongs to the first epoch
  phase: "`train`; the first call runs under `no_grad`, so it is `eval`"
why: Calls before the first pass belong to the first epoch; the phase is `train` only where the model trains and gradients are on.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.LazyLinear(4)
        self.head = nn.LazyLinear(1)

    def forward(self, x):
        return self.head(self.fc(x).relu())


net = Net()
with torch.no_grad():
    net(torch.zeros(1, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    print(epoch, net.head.weight.sum().item())
