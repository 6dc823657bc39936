"""A batch whose forward raises is skipped by `try` and `except`.
---
group: endings
captured: Net
train: [[1, -1, 1], [1, -1, 1]]
table:
  step: one batch; the skipped one is not committed, and leaves its number out
  epoch: one pass, complete
why: A step whose body raised is not committed, however it was opened; here the call raised and no optimizer step followed before the next pull.
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
        y = self.fc(x)
        if torch.isnan(y).any():
            raise ValueError("not a number")
        return y


data = torch.randn(6, 3)
data[3] = float("nan")
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for i, (x,) in enumerate(DataLoader(TensorDataset(data), batch_size=2)):
        try:
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        except ValueError as error:
            print(epoch, i, error)
    print(epoch, net.fc.weight.sum().item())
