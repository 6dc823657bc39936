"""A forward pass to check shapes before training, in train mode, then three epochs.
---
group: phases
captured: Net
train: [[2, 1], [1, 1], [1, 1]]
table:
  step: one batch; the call before training belongs to the first step
  microstep: 0, but in the first step 0 is the call before training and 1 the batch
  epoch: one pass; calls before the first pass belong to the first epoch
  phase: "`train`"
why: Calls before the first pass belong to the first epoch; a step ends at the first pull after an optimizer step, and none came before.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


net = Net()
print("output shape", tuple(net(torch.zeros(1, 3)).shape))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=4)
for epoch in range(3):
    for (x,) in loader:
        optimizer.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
