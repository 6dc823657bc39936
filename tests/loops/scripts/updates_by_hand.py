"""Plain gradient descent without an optimizer: `p -= lr * p.grad`.
---
group: steps
captured: Net
train: [[3], [3]]
says: ["`clock: {step: batch}`"]
cases:
  batch:
    spec: {clock: {step: batch}}
    train: [3, 3]
    says: []
table:
  step: all of an epoch by default, since no optimizer steps; a line says so. `clock.step=batch` makes each batch one
  microstep: each batch
  epoch: one pass
why: >
  Nothing shows that an update by hand has happened, and what looks so may be accumulation. Where no optimizer steps, the only fitting
  instance is the model. The epoch still ends where the loader begins anew; it is known to be a training loader since it fed training calls.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


net = Net()
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
for epoch in range(2):
    for (x,) in loader:
        net.zero_grad()
        net(x).square().mean().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
    print(epoch, net.fc.weight.sum().item())
