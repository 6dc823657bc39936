"""Epochs by `while`, an iterator by hand, and a budget of steps that ends in the middle of an epoch.
---
group: endings
captured: Net
train: [3, 3, 1]
incomplete: [2]
table:
  step: one batch
  microstep: always 0
  epoch: one pass; the one that is left in the middle is not complete
  phase: "`train`"
why: The budget of 7 steps leaves the third pass with two batches in the loader.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
BUDGET = 7


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


loader = DataLoader(TensorDataset(torch.randn(9, 3)), batch_size=3)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
done = 0
while done < BUDGET:
    batches = iter(loader)
    while True:
        try:
            (x,) = next(batches)
        except StopIteration:
            break
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        print(done, round(loss.item(), 6))
        if done >= BUDGET:
            break
