"""Gradient checkpointing: layers are computed again in the backward pass.
---
group: tools
captured: Net
train: [2, 2]
table:
  step: one batch
  microstep: always 0; the recompute in the backward pass is not a call
  epoch: one pass
why: "Recompute: values and arming in the first pass."
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3, 4)
        self.fc = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        x = checkpoint(self.fc, self.embed(x).relu(), use_reentrant=False)
        return self.head(x.relu())


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
