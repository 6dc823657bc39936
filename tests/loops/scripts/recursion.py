"""A recursive network over trees: the cell calls itself for its children.
---
group: parts
captured: TreeNet
target: cell
train: [3, 3]
table:
  step: one tree
  microstep: always 0; within it the cell's calls are counted as they enter, the root of the tree first
  epoch: one pass
why: "`call` is drawn once when the call enters, and is the same for its inputs, outputs and gradients, also in recursion."
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x, depth):
        below = sum(self(x * (child + 1), depth - 1) for child in range(2)) if depth else 0
        return torch.tanh(self.fc(x) + below)


class TreeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = Cell()

    def forward(self, x):
        return self.cell(x, 2)


net = TreeNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(3, 3)), batch_size=1):
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
