"""A loader whose batches a thread in the background fetches, as `prefetch_generator` does it; validation by another such loader.
---
group: loaders
captured: Net
train: [3, 3]
eval: [2, 2]
table:
  step: one batch; in `eval` one call
  epoch: one `for` over the loader
  phase: "`train`; `eval` for the validation"
why: The loop begins each pass, and another thread fetches its batches; a batch is in use from the first training call after an update.
"""

import queue
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Background(threading.Thread):
    def __init__(self, batches):
        super().__init__(daemon=True)
        self.batches, self.queue = batches, queue.Queue(2)
        self.start()

    def run(self):
        for batch in self.batches:
            self.queue.put(batch)
        self.queue.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        batch = self.queue.get()
        if batch is None:
            raise StopIteration
        return batch


class BackgroundLoader(DataLoader):
    def __iter__(self):
        return Background(super().__iter__())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(0)
data = TensorDataset(torch.randn(6, 3))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = BackgroundLoader(data, batch_size=2)
for epoch in range(2):
    net.train()
    for (x,) in loader:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        for (x,) in BackgroundLoader(data, batch_size=3):
            net(x)
    print(epoch, f"{loss.item():.6f}")
