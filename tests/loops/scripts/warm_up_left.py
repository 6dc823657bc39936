"""A warm-up of two batches by an iterator that the program keeps and never ends, then epochs over another loader.
---
group: loaders
captured: Net
train: [5, 3, 3]
table:
  step: one batch
  epoch: one pass over the second loader; the warm-up belongs to the first
why: Two loaders in turn are one epoch; an iterator that is left, though it is held, is not what the loop goes over any more.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


def update(x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
warm_up = iter(DataLoader(TensorDataset(torch.randn(9, 3)), batch_size=3))
for _ in range(2):
    update(*next(warm_up))
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
for epoch in range(3):
    for (x,) in loader:
        loss = update(x)
    print(epoch, f"{loss:.6f}")
