"""Ctrl-C in the middle of an epoch is caught, and the model is saved.
---
group: endings
captured: Net
train: [3, 1]
incomplete: [1]
table:
  step: one batch
  epoch: one pass; the interrupted one is not complete
why: An epoch whose batches were left by an interrupt is not complete.
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
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
try:
    for epoch in range(5):
        for i, (x,) in enumerate(loader):
            if (epoch, i) == (1, 1):
                raise KeyboardInterrupt  # the user presses Ctrl-C
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
except KeyboardInterrupt:
    print("interrupted, saving")
torch.save(net.state_dict(), "last.pt")
