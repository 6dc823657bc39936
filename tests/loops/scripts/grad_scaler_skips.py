"""Mixed precision with a GradScaler that skips a step whose gradients overflow.
---
group: steps
captured: Net
train: [4, 4]
table:
  step: one batch, also where the scaler skips the optimizer
  epoch: one pass
why: A step ends where an optimizer has stepped or was skipped by GradScaler.
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


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
loader = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=2)
for epoch in range(2):
    for i, (x,) in enumerate(loader):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        if i == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        print(epoch, i, scaler.get_scale(), net.fc.weight.sum().item())
