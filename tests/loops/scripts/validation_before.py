"""Validation comes before the training of each epoch.
---
group: phases
captured: Net
train: [3, 3]
eval: [4, 0]
table:
  step: "`train`: one batch; `eval`: one batch of the validation loader"
  epoch: one pass over the training loader; the second validation comes before the next pass begins, so it is in epoch 0
  phase: "`train` and `eval`"
why: >
  An epoch ends at the first training call on a pass that begins anew. Until then nothing shows that another epoch has begun; so a
  validation between two passes belongs to the epoch that was trained last, and one before the first pass to the first.
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
train = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
valid = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.eval()
    with torch.no_grad():
        print(epoch, "before", sum(net(x).square().mean().item() for (x,) in valid))
    net.train()
    for (x,) in train:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
