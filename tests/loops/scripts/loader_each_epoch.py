"""A loader that is made for each epoch, over more and more of the data (a curriculum).
---
group: loaders
captured: Net
train: [1, 2, 3]
table:
  step: one batch
  epoch: one loader each
why: Where the loaders of the epoch were deleted, another one begins the next epoch.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


data = TensorDataset(torch.randn(12, 3))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    easy = Subset(data, range(4 * (epoch + 1)))
    for (x,) in DataLoader(easy, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    print(epoch, net.fc.weight.norm().item())
