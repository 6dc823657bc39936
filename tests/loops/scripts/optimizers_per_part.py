"""An optimizer for each part of one model, and one that is replaced by another kind in the second epoch.
---
group: steps
captured: Net
train: [3, 3]
table:
  step: one batch, whichever optimizers step
  epoch: one pass
why: Several optimizers that step between two pulls are one step.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.fc(x))


net = Net()
optimizers = [torch.optim.Adam(net.fc.parameters()), torch.optim.SGD(net.head.parameters(), lr=0.1)]
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
for epoch in range(2):
    if epoch == 1:
        optimizers[0] = torch.optim.SGD(net.fc.parameters(), lr=0.01)
    for (x,) in loader:
        net(x).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    print(epoch, net.head.weight.sum().item())
