"""Two loaders side by side by `zip`: labelled and unlabelled batches, two calls in each step.
---
group: loaders
captured: Net
train: [[2, 2], [2, 2]]
table:
  step: one pair of batches
  microstep: 0 is the labelled batch, 1 the unlabelled one
  epoch: one pass over the shorter loader
  phase: "`train`"
why: >
  Both loaders are pulled between two optimizer steps, and begin together. `zip` leaves the longer one in the middle, yet the loop ended
  by itself: the epoch is complete, since the loader that ended it was exhausted.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


net = Net()
labelled = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
unlabelled = DataLoader(TensorDataset(torch.randn(9, 3)), batch_size=3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(2):
    for (x,), (u,) in zip(labelled, unlabelled, strict=False):
        loss = net(x).square().mean() + 0.1 * net(u).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
