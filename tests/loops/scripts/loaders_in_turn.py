"""Two training loaders in turn within each epoch, as in multi-task training.
---
group: loaders
captured: Net
train: [5, 5]
table:
  step: one batch of either loader
  microstep: always 0
  epoch: one pass over both; it ends when one of them begins again
  phase: "`train`"
why: An epoch ends at the first training call on a pass that begins anew a loader that was iterated in this epoch already.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


net = Net()
tasks = [DataLoader(TensorDataset(torch.randn(size, 3)), batch_size=2) for size in (6, 4)]
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(2):
    for task, loader in enumerate(tasks):
        for (x,) in loader:
            optimizer.zero_grad()
            loss = (net(x)[:, task] - 1).square().mean()
            loss.backward()
            optimizer.step()
        print(epoch, task, loss.item())
