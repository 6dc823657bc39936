"""Gradual unfreezing: the backbone is frozen in the first epoch and trains from the second on.
---
group: models
captured: Net
target: backbone
train: [2, 2]
table:
  step: one batch
  epoch: one pass
why: The base rule. The backbone's outputs carry a gradient from the second epoch on, and are captured then.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.backbone(x).relu())


net = Net()
net.backbone.requires_grad_(False)
optimizer = torch.optim.SGD(net.head.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
for epoch in range(2):
    if epoch == 1:
        net.backbone.requires_grad_(True)
        optimizer.add_param_group({"params": net.backbone.parameters(), "lr": 0.01})
    for (x,) in loader:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), net.backbone.weight.sum().item())
