"""A loader whose batches a thread in the background fetches, then epochs over one of PyTorch's own.
---
group: loaders
captured: Net
train: [3, 5, 2]
says: ["10 optimizer steps, 10 batches in 4 passes"]
table:
  step: one batch of either loader
  epoch: one pass; the first pass over the second loader belongs to the last epoch of the first loader
why: Two loaders in turn are one epoch; a call is on the batch that the loop itself has pulled, where the other thread has come to its end.
"""

import queue
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class FetchingLoader(DataLoader):
    def __iter__(self):
        batches, fetched = super().__iter__(), queue.Queue(2)

        def fetch():
            for batch in batches:
                fetched.put(batch)
            fetched.put(None)

        threading.Thread(target=fetch, daemon=True).start()
        return iter(fetched.get, None)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
first = FetchingLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
second = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=3)
for loader in (first, first, second, second):
    for (x,) in loader:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.6f}")
