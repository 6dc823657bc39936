"""Stochastic weight averaging: an averaged copy, whose statistics are renewed over the training loader at the end.
---
group: models
captured: Net
train: [2, 2]
table:
  step: one batch
  epoch: one pass in which the model trains; the pass for the averaged copy does not count
why: The averaged copy is another instance, which no optimizer steps; a pass without a training call of the model is no epoch.
"""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.fc(x))


net = Net()
averaged = AveragedModel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = SWALR(optimizer, swa_lr=0.05)
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=3)
for epoch in range(2):
    for (x,) in loader:
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()
    averaged.update_parameters(net)
    scheduler.step()
update_bn(loader, averaged)
print(averaged.module.norm.running_mean.sum().item(), averaged.n_averaged.item())
averaged.eval()
with torch.no_grad():
    print(averaged(torch.ones(1, 3)).sum().item())
