"""A sweep over learning rates: models are made in a function and die when it returns.
---
group: models
captured: Net
train: [2, 2]
says: ["instances: all"]
table:
  step: one batch
  epoch: one pass of the first trial's training
why: The first instance that trains is captured; later ones, at the same address perhaps, are others.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


def trial(lr):
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    loader = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
    for _ in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
    return loss.item()


results = {lr: trial(lr) for lr in (0.1, 0.01, 0.001)}
print(min(results, key=results.get), results)
