"""The model is wrapped in DataParallel, which on the CPU calls it as it is.
---
group: models
captured: Net
train: [2, 2]
table:
  step: one batch
  epoch: one pass
why: The base rule; a path names a module with or without the wrapper.
"""

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


net = nn.DataParallel(Net())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), list(net.state_dict()))
