"""The next batch is fetched by a pool's thread while the model trains on the one before; two batches make an update.
---
group: loaders
captured: Net
train: [[2, 2], [2, 2]]
table:
  step: the batches of one update
  microstep: the batch within them
  epoch: one iterator over the loader
why: The loop begins each pass, and another thread fetches its batches; a batch is in use from the first training call after an update.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=2)
with ThreadPoolExecutor(1) as pool:
    for epoch in range(2):
        batches, number = iter(loader), 0
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            loss = net(batch[0]).square().mean() / 2
            loss.backward()
            number += 1
            if number % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
        print(epoch, f"{loss.item():.6f}")
