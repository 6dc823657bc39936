"""An endless loader: a subclass of DataLoader whose `__iter__` runs over one inner iterator that never ends.
---
group: loaders
captured: Net
train: [3, 3]
table:
  step: one batch
  epoch: one `for` over the loader, although its workers never start again
why: Any loader whose `__iter__` the loop calls counts, whatever it wraps.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class RepeatSampler:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class InfiniteDataLoader(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", RepeatSampler(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(1)
net = Net()
loader = InfiniteDataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2, shuffle=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, f"{loss.item():.6f}")
