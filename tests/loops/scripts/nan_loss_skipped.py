"""A batch whose loss is not finite is skipped by `continue`, before backward.
---
group: endings
captured: Net
train: [[1, 2, 1], [1, 2, 1]]
table:
  step: the batches between two optimizer steps, so the skipped batch belongs to the step after it
  microstep: 0 the skipped batch, 1 the one that was used
  epoch: one pass
why: Nothing raised; a batch without an optimizer step cannot be told from accumulation.
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


data = torch.randn(8, 3)
data[3] = float("inf")
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for i, (x,) in enumerate(DataLoader(TensorDataset(data), batch_size=2)):
        loss = net(x).square().mean()
        if not torch.isfinite(loss):
            print(epoch, i, "loss is", loss.item(), "skipping")
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, net.fc.weight.sum().item())
