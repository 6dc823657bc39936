"""The training ends with an exception that nobody catches, in the middle of an epoch.
---
group: endings
captured: Net
train: [3, [1, -1]]
incomplete: [1]
code: 1
table:
  step: one batch; the one that raised is not committed
  epoch: one pass; the last is not complete
why: A step whose body raised is not committed. The exit code is the script's.
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
for epoch in range(2):
    for i, (x,) in enumerate(loader):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        if (epoch, i) == (1, 1):
            raise RuntimeError("the loss is too good")
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
