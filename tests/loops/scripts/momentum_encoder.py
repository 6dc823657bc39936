"""Self-supervised learning: a model that holds an online encoder and its momentum copy, two views of each image.
---
group: models
captured: Siamese
target: online.fc
train: [3, 3]
calls: 2
table:
  step: one batch
  microstep: always 0; within it the online encoder has calls 0 and 1
  epoch: one pass
why: The root owns both encoders; `call` counts the calls of one module within one outermost call.
"""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return nn.functional.normalize(self.fc(x), dim=-1)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Encoder()
        self.momentum = copy.deepcopy(self.online).requires_grad_(False)

    @torch.no_grad()
    def update(self, tau=0.9):
        for slow, fast in zip(self.momentum.parameters(), self.online.parameters()):
            slow.mul_(tau).add_(fast, alpha=1 - tau)

    def forward(self, a, b):
        with torch.no_grad():
            ka, kb = self.momentum(a), self.momentum(b)
        return -(self.online(a) * kb).sum(1).mean() - (self.online(b) * ka).sum(1).mean()


model = Siamese()
optimizer = torch.optim.SGD(model.online.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2):
        loss = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.update()
    print(epoch, loss.item())
