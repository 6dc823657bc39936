"""`limit_train_batches`: each epoch is left after two of its four batches.
---
group: endings
captured: Net
train: [2, 2]
incomplete: [0, 1]
table:
  step: one batch
  epoch: one pass that is left by `break`, so none is complete
why: An epoch whose batches were left by `break` is not complete.
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
loader = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=2)
for epoch in range(2):
    for i, (x,) in enumerate(loader):
        if i >= 2:
            break
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
