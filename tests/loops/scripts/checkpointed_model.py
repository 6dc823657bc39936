"""The whole model in one reentrant checkpoint, and an evaluation in which gradients are off.
---
group: steps
gradients: false
captured: Net
train: [[1, 1, 1], [1, 1, 1]]
eval: [[1], [1]]
table:
  step: one batch
  microstep: always 0
  epoch: one pass
  phase: "`train`; `eval` without gradients"
why: The checkpoint calls the model with gradients off, and again in the backward; the second call is a repetition.
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x).relu()


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
for epoch in range(2):
    for (x,) in loader:
        optimizer.zero_grad()
        checkpoint(net, x.requires_grad_(), use_reentrant=True).mean().backward()
        optimizer.step()
    with torch.no_grad():
        print(epoch, net(torch.ones(1, 3)).item())
