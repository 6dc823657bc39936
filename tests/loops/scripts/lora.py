"""LoRA: a layer is replaced by one that holds it and a low-rank update; only the update trains.
---
group: models
captured: Net
train: [2, 2]
table:
  step: one batch
  epoch: one pass
why: The base rule; the path now names the layer that replaced the first one.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class LoRALinear(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


net = Net()
net.fc = LoRALinear(net.fc, rank=1)
optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
        optimizer.zero_grad()
        loss = (net(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), sorted(net.state_dict()))
