"""SimCLR: the model is called once for each of two views of a batch.
---
group: steps
captured: Net
train: [[2, 2], [2, 2]]
table:
  step: one batch
  microstep: each view
  epoch: one pass
why: Microsteps count outermost calls within a step.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return nn.functional.normalize(self.fc(x), dim=1)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=3):
        a, b = net(x + 0.1 * torch.randn_like(x)), net(x + 0.1 * torch.randn_like(x))
        loss = nn.functional.cross_entropy(a @ b.T / 0.1, torch.arange(3))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
