"""A curriculum: epochs over one loader, then over the next one; the script keeps all loaders in a list.
---
group: loaders
captured: Net
train: [3, 3, 2, 2, 4, 4]
table:
  step: one batch
  epoch: one pass over the loader of the stage
why: The epochs before were over one loader each, so these loaders are not iterated in turn.
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
stages = [DataLoader(TensorDataset(torch.randn(size, 3)), batch_size=2) for size in (6, 4, 8)]
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for stage, loader in enumerate(stages):
    for epoch in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
        print(stage, epoch, loss.item())
