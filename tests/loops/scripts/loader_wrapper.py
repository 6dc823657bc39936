"""A loader wrapped in a class of the project, which moves batches to the device and pulls one ahead.
---
group: loaders
captured: Net
train: [4, 4]
table:
  step: one batch, although the wrapper gets the next one before this one is used
  epoch: one pass
why: >
  The wrapper pulls a batch ahead, so each pull comes before the optimizer step of the batch before, and the last batch follows no pull.
  The first pull after an optimizer step ends a step; the pull that finds the loader at its end is one too.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Prefetcher:
    def __init__(self, loader, device):
        self.loader, self.device = loader, device

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        ahead = None
        for (x,) in self.loader:
            if ahead is not None:
                yield ahead
            ahead = x.to(self.device, non_blocking=True)
        yield ahead


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = Prefetcher(DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=2), "cpu")
for epoch in range(2):
    for x in loader:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    print(epoch, len(loader), net.fc.bias.item())
