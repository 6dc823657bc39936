"""A forward that tries a module, catches its exception, and calls it again with smaller input.
---
group: parts
captured: Net
target: gate
train: [2, 2]
table:
  step: one batch
  microstep: always 0; within it the gate's failed call is call 0, the next one call 1
  epoch: one pass
why: "`call` is the same for inputs, outputs and gradients, also after an exception that the forward caught."
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        if x.abs().max() > 1:
            raise ValueError("too large")
        return self.fc(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate()

    def forward(self, x):
        try:
            return self.gate(x)
        except ValueError:
            return self.gate(x / x.abs().max())


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.tensor([[5.0, 1, 2], [0.5, 0.1, 0.2]])), batch_size=1):
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
