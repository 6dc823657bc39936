"""`itertools.cycle` around a loader, with accumulation that goes on over the end of a pass.
---
group: loaders
captured: Net
train: [[2, 2, 2, 2, 2]]
table:
  step: one optimizer step, also over the end of a pass
  microstep: each batch that is accumulated
  epoch: all is one epoch, since `cycle` iterates the loader once and then repeats what it kept
why: After its first pass the loader is never pulled again; without a pull a step ends at the first training call after an optimizer step.
"""

from itertools import cycle

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(10, 3)), batch_size=2)
for i, (x,) in zip(range(10), cycle(loader)):
    net(x).square().mean().backward()
    if i % 2 == 1:
        optimizer.step()
        optimizer.zero_grad()
        print(i, net.fc.bias.item())
